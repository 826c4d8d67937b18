"""`python -m plots history RESULT...`, from files to pages."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from bench.store.parquet import write
from plots.__main__ import app
from tests.drawing import run_seed
from tests.plots.synthetic import CPU, H100, Machine, small

SEED = run_seed()
FIRST = datetime(2026, 11, 1, 2, 0, tzinfo=UTC)


def nights(folder: Path, machine: Machine, steps: Sequence[float], k: int = 1024, **facts: Any) -> list[Path]:
    """A file a night; one product takes so many times as long as it did, all have 0.1 % noise."""
    chance = random.Random(SEED)
    paths = []
    for number, times in enumerate(steps):
        began = FIRST + timedelta(days=number)
        run_id = f"{began:%Y%m%dT%H%M%SZ}-4f2a91c"
        rows = []
        for row in small(machine):
            slower = times if row.sweep == "gemm/some" and json.loads(row.parameters)["k"] == k else 1.0
            median_s = (row.median_s or 0.0) * slower * chance.gauss(1, 0.001)
            ends = {"low_s": median_s * 0.999, "median_s": median_s, "high_s": median_s * 1.001}
            rows.append(dataclasses.replace(row, run_id=run_id, utc=began.isoformat(), **ends, **facts))
        paths.append(write(folder / f"{machine.facts['device']}-{run_id}.parquet", rows))
    return paths


def ran(*words: object) -> Result:
    done = CliRunner().invoke(app, ["history", *map(str, words)])
    assert "Traceback" not in done.output
    return done


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten nights of a GPU, the last three with a product that takes 1.3 times as long; three of a CPU."""
    folder = tmp_path_factory.mktemp("nights")
    nights(folder, H100, [1.0] * 7 + [1.3] * 3)
    nights(folder, CPU, [1.0] * 3)
    return folder


def test_a_page_for_each_device(results: Path, tmp_path: Path) -> None:
    done = ran(results, "-o", tmp_path)
    assert done.exit_code == 0, done.output
    gpu, cpu = tmp_path / "h100-sxm", tmp_path / "amd-epyc-9r14"
    assert f"{gpu / 'index.html'}: 10 nights, open steps: 1" in done.stdout
    assert f"{cpu / 'index.html'}: 3 nights, open steps: 0" in done.stdout
    text = (gpu / "index.html").read_text("utf-8")
    assert "SLOWER" in text and "n1024" in text and "2026-11-08" in text
    assert "SLOWER" not in (cpu / "index.html").read_text("utf-8")
    (figure,) = (gpu / "series").glob("*.png")
    assert figure.name.startswith("gemm-some-cublas-float32") and figure.with_suffix(".svg").is_file()
    assert (gpu / "movers.png").is_file() and (gpu / "machine.png").is_file()
    top = (tmp_path / "index.html").read_text("utf-8")
    assert "h100-sxm/index.html" in top and "amd-epyc-9r14/index.html" in top


def test_shown_are_fewer_nights_and_judged_are_all(results: Path, tmp_path: Path) -> None:
    for words in (["--last", 2], ["--since", "2026-11-09"]):
        done = ran(results, "-o", tmp_path, "--match", "K4096", *words)
        assert done.exit_code == 0, done.output
        assert "index.html: 2 nights, open steps: 1" in done.stdout
        drawn = sorted(path.name for path in (tmp_path / "h100-sxm" / "series").glob("*.png"))
        assert len(drawn) == 2 and "-k1024-" in drawn[0] and "-k4096-" in drawn[1]
        # The CPU's last night is before that date.
        assert ("amd-epyc-9r14: its last night" in done.stderr) == (words[0] == "--since")
    none = ran(results, "-o", tmp_path, "--match", "nowhere")
    assert none.exit_code == 0 and "--match nowhere: no series of h100-sxm has this" in none.stderr


def test_a_bad_file_does_not_hide_the_nights(tmp_path: Path) -> None:
    (first, *_) = nights(tmp_path / "r", CPU, [1.0] * 3)
    first.write_bytes(first.read_bytes()[:-40])
    done = ran(tmp_path / "r", "-o", tmp_path / "out")
    assert done.exit_code == 0 and f"left out: {first}" in done.stderr and ": 2 nights" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--since", "2026-13-01"], "--since 2026-13-01: no date; give one such as 2026-11-01"),
        (["--since", "2027-01-01"], "its last night is of 2026-11-10, before --since"),
        (["--last", "0"], "--last 0: at least 1 night has to be shown"),
        (["--last", "-3"], "--last -3: at least 1 night has to be shown"),
    ],
)
def test_a_refusal_is_one_sentence(results: Path, tmp_path: Path, words: list[str], says: str) -> None:
    done = ran(results, "-o", tmp_path / "out", *words)
    assert done.exit_code == 2 and says in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not done.stdout and not (tmp_path / "out").exists()


def test_imported_rows_are_no_nights(tmp_path: Path) -> None:
    nights(tmp_path / "r", H100, [1.0, 1.0], source="somebody 1.0; MIT")
    done = ran(tmp_path / "r", "-o", tmp_path / "out")
    assert done.exit_code == 2 and done.stderr.count("imported timings have no nights") == 2
    assert done.stderr.splitlines()[-1].startswith("error: no night to show")
    absent = ran(tmp_path / "absent")
    assert absent.exit_code == 2 and "absent: no such file" in absent.stderr


def test_a_place_that_cannot_be_written_is_a_sentence(results: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    done = ran(results, "-o", tmp_path / "file")
    assert done.exit_code == 2 and "pages cannot be written here" in done.stderr


def test_of_many_units_only_those_that_moved_get_a_page(tmp_path: Path) -> None:
    for unit in range(9):
        steps = [1.0] * 7 + [1.3 if unit == 4 else 1.0] * 3
        nights(tmp_path / f"n{unit}", H100, steps, device_id=f"{unit:016x}")
    done = ran(tmp_path, "-o", tmp_path / "pages")
    assert done.exit_code == 0, done.output
    assert "9 units; 1 with an open step get a page" in done.stderr and "plots fleet" in done.stderr
    pages = sorted(path.parent.name for path in (tmp_path / "pages").rglob("index.html"))
    assert len(pages) == 2 and pages[0].startswith("h100-sxm-") and pages[1] == "pages"
    index = (tmp_path / "pages" / "index.html").read_text()
    assert index.count("<a href") == 1 and index.count("NVIDIA H100 80GB HBM3") == 9
