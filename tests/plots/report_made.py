"""Report pages of made-up and of committed runs, and what is inside one."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.cli.claims import judged_rows
from bench.device.datasheet import find_datasheet
from bench.judge.frame import DeviceRun
from bench.judge.read_runs import load
from bench.store.parquet import write
from bench.store.schema import Measurement
from kernels.gemm.problem import Gemm
from plots.report.page import SECTIONS, OfResults, html, of_runs
from plots.report.section import Results
from tests.plots.synthetic import H100, NO_TIME, Machine, ceilings, row

CORE = Path("results/reference/core")
"""The committed run of the suite `core`."""


def many(count: int, machine: Machine = H100) -> Iterator[Measurement]:
    """The machine's ceilings, then this many timed products of different shapes, every tenth flagged."""
    yield from ceilings(machine)
    sizes = [64 * i for i in range(1, 120)]
    shapes = itertools.islice(itertools.product(sizes, sizes, ("float16", "bfloat16", "float32")), count)
    for number, (m, n, dtype) in enumerate(shapes):
        flagged = {"settled": False} if number % 10 == 0 else {}
        name = machine.libraries[number % len(machine.libraries)]
        yield row(machine, "gemm/many", Gemm(m=m, n=n, k=1024, dtype=dtype), name, **flagged)


def few(machine: Machine = H100) -> list[Measurement]:
    """Ceilings, and a sweep of every implementation of which one case is suspect and one was skipped."""
    rows = [*ceilings(machine)]
    for name in machine.libraries:
        for n in (256, 512, 1024, 2048, 4096):
            facts: dict[str, Any] = {"settled": False} if n == 1024 else {}
            if n == 256 and name == machine.libraries[-1]:
                facts = NO_TIME | {"reason": "it needs 17 more bytes"}
            rows.append(row(machine, "gemm/some", Gemm(m=4096, n=n, k=n, dtype="float16"), name, **facts))
    return rows


def read(path: Path) -> list[DeviceRun]:
    """The runs of a file or folder, with datasheets, as the command reads them."""
    return load([path], find_datasheet)


def results(path: Path) -> Results:
    """What a result file or folder holds, as the command reads it."""
    runs = read(path)
    return of_runs([path], runs, judged_rows(runs, lambda line: None))


def page(path: Path, sections: Sequence[OfResults] = SECTIONS) -> str:
    """The page about a result file or folder."""
    return html(results(path), sections)


def written(path: Path, rows: list[Measurement], sweeps: dict[str, Any] | None = None) -> Path:
    """The rows as a result file."""
    return write(path, rows, sweeps or {"gemm/some": {"title": "Some products", "plot": [{"x": "n"}]}})


def content(page: str) -> dict[str, Any]:
    """What is packed into a page."""
    packed = re.search(r'id="content">([^<]+)<', page)
    assert packed
    unpacked: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    return unpacked


def column(cases: dict[str, Any], name: str) -> list[Any]:
    """A column of the page's cases, one value for each."""
    values = cases[name]
    return values if isinstance(values, list) else [values["values"][at] for at in values["at"]]
