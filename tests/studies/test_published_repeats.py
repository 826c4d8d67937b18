"""`python -m studies published_repeats FOLDER`: the spreads of published runs, and false verdicts on them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from typer.testing import CliRunner

from bench.interop.source_file import described
from studies.__main__ import app

SIZES = {"n_head": 64, "n_kv_head": 8, "n_embd": 8192, "n_expanded_embd": 28672, "vocab_size": 32000}


def run_of(folder: Path, gpu: str, model: str, ms: float) -> None:
    """A file of Vidur in which everything takes so long, and is 1 % slower where it is timed once more."""
    names = [name for name in described("vidur").tables[0].columns if not name.endswith("?")]
    lines = pd.DataFrame(ms, index=range(3), columns=names, dtype=object).assign(
        **SIZES, use_gated_mlp=True, num_tensor_parallel_workers=1, num_tokens=[1024, 2048, 2048]
    )
    lines.loc[2, [name for name in names if name.startswith("time_stats")]] = 1.01 * ms
    path = folder / "vidur" / "data/profiling/compute" / gpu / "org" / model / "mlp.csv"
    path.parent.mkdir(parents=True)
    lines.to_csv(path, index=False)


def test_runs_of_one_launch_tell_spreads_and_false_verdicts(tmp_path: Path) -> None:
    for gpu, apart in (("a100", 1.05), ("a40", 1.04)):
        run_of(tmp_path, gpu, "one", 50.0)
        run_of(tmp_path, gpu, "two", 50.0 * apart)
    done = CliRunner().invoke(app, ["published_repeats", str(tmp_path)])
    lines = [line.split() for line in done.stdout.splitlines()]
    (chosen,) = (line for line in lines if line[:2] == ["matrix", "multiplications"])
    # ln 1.05, ln 1.01, and what is left: the root of half the difference of their squares.
    assert chosen[2:] == ["8", "4.9", "%", "4.9", "%", "1.0", "%", "3.4", "%", "8"]
    (unseen,) = (line for line in lines if line[:2] == ["nvidia-a40", "matrix"])
    assert unseen[3:] == ["8", "3.9", "%", "3.9", "%", "0", "%", "100.0", "%", "100", "%", "0.0", "%"]


def test_a_folder_without_their_files_is_refused_in_a_sentence(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["published_repeats", str(tmp_path)])
    assert done.exit_code == 2 and f"{tmp_path}: holds no vidur/data/profiling/" in done.stderr
