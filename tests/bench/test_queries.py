"""docs/queries.sql: what its views say is what the commands say of the same files."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from bench.fleet import observed
from bench.judge.read_runs import read
from bench.model.predict import reached
from bench.store import parquet
from bench.store.schema import Measurement
from tests.bench.rows import row

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "results" / "reference"
PAGE = ROOT / "docs" / "queries.md"
CASE = ["device", "run_id", "sweep", "operator", "implementation", "parameters", "threads_asked"]
BEGAN = "20200101T020000Z-0123456789ab"


def database(*files: Path) -> duckdb.DuckDBPyConnection:
    """The views, over these files or globs."""
    connection = duckdb.connect(config={"threads": 2})
    connection.execute("SET VARIABLE results = $files", {"files": [str(path) for path in files]})
    connection.execute((ROOT / "docs" / "queries.sql").read_text("utf-8"))
    return connection


def unit_row(unit: int = 0, **facts: Any) -> Measurement:
    values = {
        "run_id": BEGAN,
        "utc": "2020-01-01T02:00:01+00:00",
        "device": "made-up-gpu",
        "device_kind": "cuda",
        "device_id": f"u{unit:02d}",
        "host": f"node{unit // 4}",
        "sm_count": 100,
        "cache_byte": 10**7,
        "cache": "cold",
        "threads_asked": "all",
    }
    return row(**(values | facts))


# ---- the share of the roof


def shares(files: Path) -> pd.Series:
    found = database(files).sql("SELECT * FROM roof_share").df()
    return found.set_index(CASE)["of_roof"]


def judged(folder: Path) -> pd.Series:
    """The share of the roof of every time with a cold cache, as tables have it."""
    found = {
        (row.device, row.run_id, row.sweep, row.operator, row.implementation, row.parameters, threads): share
        for run in read([folder])
        for row in run.rows
        if row.is_timed and row.cache == "cold"
        for threads in [row.threads_asked or "all"]
        for share in [reached(row, run.roof_of(row))]
    }
    index = pd.MultiIndex.from_tuples(list(found), names=CASE)
    return pd.Series(list(found.values()), index=index, name="of_roof", dtype=float)


def equal(one: pd.Series, other: pd.Series) -> None:
    assert one.index.is_unique and len(one)
    pd.testing.assert_series_equal(one.sort_index(), other.sort_index(), rtol=1e-12)


@pytest.mark.parametrize("runs", ["core", "fresh_nights"])
def test_the_share_is_that_of_the_commands(runs: str) -> None:
    equal(shares(REFERENCE / runs / "*/*.parquet"), judged(REFERENCE / runs))


# ---- units


def fleet_rows(chance: np.random.Generator) -> list[Measurement]:
    """Two nights of twelve units, alone and together, a case of each class or two; run ids are shared."""
    classes = {
        "launch": {"operator": "launch", "arithmetic": "vector", "flop": 0, "byte": 0},
        "transfer": {"operator": "transfer", "arithmetic": "vector", "flop": 0, "byte": 9, "cache": "warm"},
        "cache": {"operator": "stream", "arithmetic": "vector", "flop": 0, "byte": 9, "cache": "warm"},
        "compute": {"operator": "gemm", "arithmetic": "matrix", "flop": 640, "byte": 10},
        "memory": {"operator": "gemm", "arithmetic": "matrix", "flop": 639, "byte": 10},
        "activations": {"operator": "activations", "arithmetic": "vector", "flop": 9999, "byte": 10},
    }
    made = []
    for day, gpus, unit in itertools.product((1, 2), (None, 8), range(12)):
        together = int(gpus == 8)
        run = {"run_id": f"2020010{day}T02000{together}Z-0", "utc": f"2020-01-0{day}T02:0{together}:00+00:00"}
        run |= {"tags": '{"node":"mine"}'} if unit == 0 else {}
        run |= {"concurrent_gpus": gpus, "parameters": '{"gpus":false}', "low_s": 1.0, "high_s": 2.0}
        for name, facts in classes.items():
            median_s = float(chance.uniform(1, 2))
            made.append(unit_row(unit, sweep=f"fleet/{name}", median_s=median_s, **run, **facts))
    return made


@pytest.fixture
def fleet(tmp_path: Path, chance: np.random.Generator) -> Path:
    rows = fleet_rows(chance)
    for key in sorted({(each.run_id, each.device_id) for each in rows}):
        path = tmp_path / "results" / f"{key[1]}" / f"{key[0]}.parquet"
        parquet.write(path, [each for each in rows if (each.run_id, each.device_id) == key])
    return tmp_path / "results"


def test_the_newest_times_and_their_classes_are_those_of_the_fleet(fleet: Path) -> None:
    seen = observed.read([fleet])
    newest = observed.newest(seen.times)
    columns = [newest[name] for name in ("unit", "class", "together", "log_s")]
    wanted = {
        (seen.units[unit].node, unit, kind, together, round(math.exp(log_s), 9))
        for unit, kind, together, log_s in zip(*columns, strict=True)
    }
    views = database(fleet / "*/*.parquet")
    found = views.sql("SELECT node, unit, class, together, median_s FROM latest").fetchall()
    assert {(*labels, round(median_s, 9)) for *labels, median_s in found} == wanted and len(found) == 144


def test_our_kernels_meet_the_fastest_library_of_their_run(tmp_path: Path) -> None:
    def time(implementation: str, median_s: float, **facts: Any) -> Measurement:
        return unit_row(
            implementation=implementation,
            median_s=median_s,
            sweep=facts.pop("sweep", "softmax/rows"),
            operator="softmax",
            parameters='{"rows":1}',
            **facts,
        )

    rows = [
        time("triton", 1.0),
        time("triton", 4.0, sweep="softmax/length", utc="2020-01-01T02:00:09+00:00"),  # later: it counts
        time("triton-64", 2.0),
        time("aten", 6.0),
        time("inductor", 3.0),
        time("triton", 1.0, cache="warm"),
        time("inductor", 0.1, status="wrong"),
    ]
    parquet.write(tmp_path / "made-up-gpu" / "r.parquet", rows)
    found = database(tmp_path / "*/*.parquet").sql(
        "SELECT implementation, median_s, library, library_s, ratio FROM duel ORDER BY 1"
    )
    assert found.fetchall() == [
        ("triton", 4.0, "inductor", 3.0, 0.75),
        ("triton-64", 2.0, "inductor", 3.0, 1.5),
    ]


# ---- the page


def queries() -> Sequence[tuple[str, str]]:
    """Each query of the page that has its output below it."""
    return re.findall(r"```sql\n((?:(?!```).)*)```\n\n((?:\|[^\n]*\n)+)", PAGE.read_text("utf-8"), re.DOTALL)


def markdown(relation: duckdb.DuckDBPyRelation) -> str:
    rows = [relation.columns, ["---"] * len(relation.columns), *relation.fetchall()]
    lines = (f"| {' | '.join('' if cell is None else str(cell) for cell in cells)} |" for cells in rows)
    return "\n".join(lines)


def test_the_page_shows_what_its_query_finds() -> None:
    ((query, output),) = queries()
    assert markdown(database(REFERENCE / "fresh_nights/*/*.parquet").sql(query)) + "\n" == output


def test_the_page_s_program_gives_imported_times_their_roofs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    program = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)[-1]
    held: dict[str, Any] = {"__name__": "__main__"}
    exec(program, held)
    rows = held["rows"]
    assert rows["imported"].all() and rows["of_roof"].notna().mean() > 0.8
    assert rows[["rate_per_s", "intensity", "datasheet_s", "predicted_s", "flags"]].notna().all(axis=None)
    assert "nvidia-h200" in capsys.readouterr().out
