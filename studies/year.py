"""What a long history costs: `python -m studies.year DIR [SERIES [NIGHTS]]`, by default 3,000 and 365.

Writes a made-up year of a made-up GPU into DIR, a file a night as a run writes it, samples and all: noise,
odd nights, a driver change, one class 5 % slower near the end. Then times, in processes of their own, what
`bench nightly` does after measuring, and `plots history`: wall seconds and largest memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.store.parquet import sealed, write
from tests.bench.rows import row

ROOT = Path(__file__).parents[1]
DEVICE = "made-up-gpu"
SAMPLES = 30
OPERATORS = ("gemm", "linear", "batchnorm", "activations", "pooling", "layernorm", "softmax", "fusion")
JUDGING = """
import sys
from pathlib import Path
from bench.judge.history.load import histories
from bench.judge.history.detector import judged
(history,) = histories([Path(sys.argv[1])])
found = judged(history)
print(len(history.series), "series,", len(history.nights), "nights,", len(found.steps), "steps")
"""


def first_night(folder: Path, series: int) -> pa.Table:
    """The rows that every night has, as a run writes them."""
    made = []
    for number in range(series):
        ceiling = number < 20
        operator = OPERATORS[number % len(OPERATORS)]
        memory = ceiling and number % 2
        made.append(
            row(
                device=DEVICE,
                device_name="Made-up GPU",
                device_kind="cuda",
                device_id="0123abcd",
                sweep=("ceilings/stream" if memory else "ceilings/gemm") if ceiling else f"{operator}/all",
                role="roof" if ceiling else "measurement",
                operator=operator,
                implementation=("cublas", "triton")[number // len(OPERATORS) % 2],
                dtype="float16",
                parameters=json.dumps({"dtype": "float16", "m": number}),
                cache="cold",
                threads_asked="all",
                clock="graph",
                regime="sustained",
                flop=0 if memory else 10**9,
                byte=10**8,
                byte_moved=10**8,
                moved_written=10**7,
                samples_s=[1e-3] * SAMPLES,
                low_s=1e-3,
                high_s=1e-3,
                visits=3,
                visit_samples=[SAMPLES // 3] * 3,
                concurrent_gpus=1,
            )
        )
    path = write(folder / "first.parquet", made)
    table = pq.read_table(path)
    path.unlink()
    return table


def year(folder: Path, series: int, nights: int, seed: int) -> None:
    """The files."""
    chance = np.random.default_rng(seed)
    table = first_night(folder, series)
    level_s = np.exp(chance.uniform(np.log(1e-5), np.log(1e-2), series))
    slower = np.array([one.as_py() == "softmax" for one in table["operator"]])
    slower[:20] = False
    begin = datetime(2026, 1, 1, 2, tzinfo=UTC)
    for night in range(nights):
        odd = np.where(chance.random(series) < 0.06, chance.uniform(1.03, 1.08, series), 1.0)
        effect = np.where(slower & (night >= nights - 10), 1.05, 1.0)
        median_s = level_s * odd * effect * np.exp(0.01 * chance.standard_normal(series))
        samples_s = median_s[:, None] * np.exp(0.004 * chance.standard_normal((series, SAMPLES)))
        at = begin + timedelta(days=night)
        run_id = f"{at:%Y%m%dT%H%M%SZ}-{night // 3:012x}"
        columns = {
            "run_id": [run_id] * series,
            "utc": [at.isoformat()] * series,
            "commit": [f"{night // 3:012x}"] * series,
            "driver": ["550.1" if night < nights // 2 else "560.2"] * series,
            "median_s": median_s,
            "low_s": median_s * 0.998,
            "high_s": median_s * 1.002,
            "samples_s": list(samples_s),
        }
        for name, values in columns.items():
            place = table.schema.get_field_index(name)
            table = table.set_column(
                place, table.schema.field(place), pa.array(values, table.field(name).type)
            )
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
        (folder / f"{run_id}.parquet").write_bytes(sealed(bytes(sink.getvalue())))


def cost(command: list[str]) -> tuple[float, float, str]:
    """(wall seconds, largest memory of a process in bytes, what it said last)."""
    began = time.monotonic()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.read().strip().splitlines()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (command, process.returncode)
    return time.monotonic() - began, used.ru_maxrss * 1024.0, said[-1] if said else ""


def main(folder: Path, series: int = 3000, nights: int = 365, seed: int = 0) -> None:
    """Make the year unless it is there, and time what is done with it."""
    results = folder.absolute() / f"{series}x{nights}" / DEVICE
    if not results.is_dir():
        results.mkdir(parents=True)
        year(results, series, nights, seed)
    disk_byte = sum(path.stat().st_size for path in results.iterdir())
    print(f"{series} series x {nights} nights, {disk_byte / 1e6:.0f} MB in {nights} files, seed {seed}")
    for name, command in {
        "judging": [sys.executable, "-c", JUDGING, str(results)],
        "history page": [
            *(sys.executable, "-m", "plots", "history", str(results)),
            *("-o", str(results.parent / "figures")),
        ],
    }.items():
        wall_s, memory_byte, said = cost(command)
        print(f"{name:13} {wall_s:6.1f} s  {memory_byte / 1e6:6.0f} MB  {said}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(given) for given in sys.argv[2:4]))
