"""A year of a fleet: `python -m studies.fleet_year DIR`, by default 200 units and 365 nights.

Makes up the runs of a fleet from fifteen rows of a committed run: units 1.2 % apart, runs 0.4 %, two units
slow by 8 %, at most 100 samples a row, drawn from those of the row. They are packed month by month without
files, by the function that `python -m bench pack` uses. Prints the sizes, and the time of every query of
docs/queries.md. Then writes the last month as result files, by the function that writes a run's, and packs
them by the command.
"""

from __future__ import annotations

import hashlib
import re
import resource
import subprocess
import sys
import time
from datetime import date, timedelta
from itertools import groupby
from pathlib import Path
from typing import Annotated

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer
from bench.store.pack import Original

from bench.store import pack, parquet

ROOT = Path(__file__).parents[1]
RUN = ROOT / "results/reference/fresh_nights/cpu-amd-epyc-2-core/20261122T174508Z-db8eaf2a459c.parquet"
CASES = (0, 1, 3, 5, 7, 12, 15, 21, 22, 23, 24, 25, 26, 27, 28)
"""Which of the run's rows with a time: launch, copy, read, two products, two caches, and all measurements."""
DEVICE, SLOTS, SAMPLES = "made-up-gpu", 8, 100
FIRST = date(2025, 11, 1)
UNIT_NOISE, RUN_NOISE, SLOW = 0.012, 0.004, 1.08


def cases() -> pa.Table:
    """The committed rows that every run of the fleet repeats."""
    ((_, table),) = parquet.tables([RUN])
    timed = table.filter(pc.and_(pc.equal(table["status"], "ok"), pc.greater(table["median_s"], 0.0)))
    return timed.take(list(CASES)).replace_schema_metadata(None)


def month(nights: list[date], units: int, level: np.ndarray, chance: np.random.Generator) -> pa.Table:
    """All rows of a month: night by night, by unit, by case; `level` [units] multiplies times."""
    base = cases()
    runs, rows = len(nights) * units, len(nights) * units * len(base)
    table = base.take(np.tile(np.arange(len(base)), runs))
    unit = np.tile(np.arange(units), len(nights))
    factor = level[unit, None] * np.exp(chance.normal(0, RUN_NOISE, (runs, len(base))))
    drawn, counts = [], []
    for at, samples_s in enumerate(base["samples_s"].to_pylist()):
        pool = np.array(samples_s[:SAMPLES])
        drawn.append(pool[chance.integers(0, len(pool), (runs, len(pool)))] * factor[:, at, None])
        counts.append(len(pool))
    median_s = np.stack([np.median(part, axis=1) for part in drawn], axis=1).ravel()
    samples = np.concatenate(drawn, axis=1).ravel()
    ends = np.concatenate([[0], np.cumsum(np.tile(counts, runs))]).astype(np.int32)
    one = np.arange(rows + 1, dtype=np.int32)
    began = [f"{night:%Y%m%d}T020000Z-0123456789ab-gpu{u % SLOTS}" for night in nights for u in range(units)]
    utc = [
        f"{night}T02:00:{at:02d}.000+00:00"
        for night in nights
        for _ in range(units)
        for at in range(len(base))
    ]

    def of_unit(texts: list[str]) -> pa.Array:
        return pa.array(texts).take(np.repeat(unit, len(base)))

    clock_hz = 15e6 * chance.integers(115, 125, rows)
    columns = {
        "run_id": pa.array(began).take(np.repeat(np.arange(runs), len(base))),
        "utc": pa.array(utc),
        "device": pa.array([DEVICE]).take(np.zeros(rows, dtype=np.int64)),
        "device_name": pa.array(["made-up GPU"]).take(np.zeros(rows, dtype=np.int64)),
        "device_kind": pa.array(["cuda"]).take(np.zeros(rows, dtype=np.int64)),
        "device_id": of_unit([hashlib.sha256(b"%d" % u).hexdigest()[:12] for u in range(units)]),
        "host": of_unit([f"node{u // SLOTS:03d}" for u in range(units)]),
        "pci_bus": of_unit([f"0000:{0x1B + 16 * (u % SLOTS):02x}:00.0" for u in range(units)]),
        "gpu_uuid": of_unit([f"GPU-{hashlib.sha256(b'%d' % u).hexdigest()[:32]}" for u in range(units)]),
        "median_s": pa.array(median_s),
        "low_s": pa.array(median_s * (1 - chance.uniform(0.001, 0.004, rows))),
        "high_s": pa.array(median_s * (1 + chance.uniform(0.001, 0.004, rows))),
        "samples_s": pa.ListArray.from_arrays(ends, samples),
        "visits": pa.array(np.ones(rows, dtype=np.int64)),
        "visit_samples": pa.ListArray.from_arrays(one, np.tile(counts, runs)),
        "visit_at_s": pa.ListArray.from_arrays(one, chance.uniform(0, 60, rows).round(3)),
        "concurrent_gpus": pa.array(np.ones(rows, dtype=np.int64)),
        "sm_clock_hz": pa.array(clock_hz),
        "power_w": pa.array(chance.normal(600, 30, rows).round(1)),
        "temperature_c": pa.array(chance.integers(40, 75, rows).astype(np.float64)),
    }
    for name, values in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, values)
    return table


def timed_queries(files: str) -> None:
    """Run every query of docs/queries.md on these files, each in DuckDB with two threads."""
    queries = re.findall(r"```sql\n(.*?)```", (ROOT / "docs/queries.md").read_text("utf-8"), re.DOTALL)
    for query in queries:
        connection = duckdb.connect(config={"threads": 2})
        connection.execute(f"SET enable_progress_bar = false; SET VARIABLE results = ['{files}']")
        connection.execute((ROOT / "docs/queries.sql").read_text("utf-8"))
        begun, used_s = time.perf_counter(), time.process_time()
        count = len(connection.execute(query).fetchall())
        took_s, used_s = time.perf_counter() - begun, time.process_time() - used_s
        words = " ".join(query.split())[:80]
        print(f"{took_s:6.2f} s ({used_s:.2f} s of processors)  {count:5,} rows  {words}", flush=True)


def year(folder: Path, units: int, nights: int, chance: np.random.Generator) -> pa.Table:
    """Make the packs of a year below `folder`, and tell what they cost; the rows of the last."""
    level = np.exp(chance.normal(0, UNIT_NOISE, units))
    level[chance.choice(units, 2, replace=False)] *= SLOW
    days = [FIRST + timedelta(days=at) for at in range(nights)]
    begun = time.perf_counter()
    for name, of_month in groupby(days, lambda day: f"{day:%Y-%m}"):
        table = month(list(of_month), units, level, chance)
        runs = len(table) // len(CASES)
        listed = [Original(f"{at:06d}.parquet", f"{at:032x}", 0, len(CASES), 0) for at in range(runs)]
        pack.write(folder / DEVICE / f"{name}.parquet", table, listed, [{}])
    sizes = {path: path.stat().st_size / 1e6 for path in sorted(folder.rglob("*.*"))}
    for suffix in (".parquet", ".samples"):
        print(f"{sum(size for path, size in sizes.items() if path.suffix == suffix):8.1f} MB in {suffix}")
    print(f"{nights * units:,} runs {_cost(begun, resource.RUSAGE_SELF)}", flush=True)
    return table


def files(folder: Path, table: pa.Table) -> None:
    """Write the runs of a month as result files, pack these by the command, and compare."""
    begun = time.perf_counter()
    for at in range(0, len(table), len(CASES)):
        run = table.slice(at, len(CASES))
        host, name = run["host"][0].as_py(), run["run_id"][0].as_py()
        parquet.write(folder / "results" / host / f"{name}.parquet", list(parquet.rows(run)))
    paths = list((folder / "results").rglob("*.parquet"))
    byte = sum(path.stat().st_size for path in paths)
    print(
        f"{len(paths):,} result files, {byte / 1e6:.0f} MB, {_cost(begun, resource.RUSAGE_SELF)}", flush=True
    )
    begun = time.perf_counter()
    words = [sys.executable, "-m", "bench", "pack", str(folder / "results"), "-o", str(folder / "files")]
    subprocess.run(words, cwd=ROOT, check=True)
    print(f"packed {_cost(begun, resource.RUSAGE_CHILDREN)}")


def _cost(begun: float, whose: int) -> str:
    used = resource.getrusage(whose)
    cpu_s = used.ru_utime + used.ru_stime
    wall_s = time.perf_counter() - begun
    return f"in {wall_s:.0f} s ({cpu_s:.0f} s of a processor so far), at most {used.ru_maxrss / 1e6:.1f} GB"


def main(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    units: int = 200,
    nights: int = 365,
    seed: int = 0,
) -> None:
    """Make a year, tell its size, and time the documented queries."""
    table = year(folder.resolve() / "packs", units, nights, np.random.default_rng(seed))
    timed_queries(f"{folder.resolve()}/packs/*/*.parquet")
    files(folder.resolve(), table)


if __name__ == "__main__":
    typer.run(main)
