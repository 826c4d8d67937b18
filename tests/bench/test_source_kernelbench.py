"""Import of KernelBench's tables: the shapes by the commit in a file's name, and problems without a time."""

import json
import random
from pathlib import Path

import kernels
from bench.interop.import_source import SourceOutcome, imported
from bench.interop.imported_problems import with_imported
from bench.interop.source_file import described

RELU = "19_ReLU.py"
POOLING = "42_Max_Pooling_2D.py"


def written(folder: Path, name: str, problems: dict[str, dict[str, object] | None]) -> SourceOutcome:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps({"level1": problems}))
    outcome = imported(described("kernelbench"), folder, folder / "results", with_imported(kernels.problem))
    outcome.rows = list(outcome.rows)
    return outcome


def timed(mean: float) -> dict[str, object]:
    plain = dict.fromkeys(("std", "min", "max"), mean)
    return {"mean": mean, **plain, "num_trials": 100, "hardware": "Made-up GPU", "device": "cuda:0"}


def test_what_did_not_run_is_counted_and_no_column(tmp_path: Path, seed: int) -> None:
    mean = random.uniform(5, 50)
    outcome = written(
        tmp_path / "new", "Host_0123abc_inductor.json", {RELU: timed(mean), "23_Softmax.py": None}
    )
    (row,) = outcome.rows[0].rows
    assert (row.operator, row.implementation, row.median_s) == ("activations", "inductor", mean / 1e3)
    assert {aside.reason: count for aside, count in outcome.aside.items()} == {"it did not run": 1}


def test_the_commit_in_the_name_decides_the_shapes(tmp_path: Path, seed: int) -> None:
    problems = {RELU: timed(random.uniform(5, 50)), POOLING: timed(random.uniform(50, 500))}
    old = written(tmp_path / "old", "Host_80c03d4_eager.json", problems)
    new = written(tmp_path / "new", "Host_0123abc_eager.json", problems)
    (before,) = old.rows[0].rows
    after = {row.operator: row for row in new.rows[0].rows}
    assert (before.byte, before.cache) == (2 * 4 * 16 * 16384, "warm")
    assert (after["activations"].byte, after["activations"].cache) == (2 * 4 * 4096 * 393216, "cold")
    assert json.loads(after["pooling"].parameters)["window"] == 4
    assert [aside.reason for aside in old.aside] == ["pooling in three dimensions or with dilation"]
