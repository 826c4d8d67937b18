"""Kernels that are right whenever they are checked and do not do the work when they are timed: no time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bench.worker.__main__ import make_bench, respond
from bench.worker.measure_case import Bench
from bench.worker.visit import Visit

KERNELS = """
import pathlib, threading
from concurrent.futures import ThreadPoolExecutor
import torch

kept, calls, pool = {}, [0], ThreadPoolExecutor(1)
last = []

def right(x):
    return torch.softmax(x, 1)

def fills(x, out):
    torch.softmax(x, 1, out=out)

def waits(x, out):
    pool.submit(torch.softmax, x, 1, out=out).result()

scratch = {}
def reuses(x):
    y = scratch.setdefault(x.shape, torch.empty_like(x))
    torch.sub(x, x.amax(1, keepdim=True), out=y).exp_()
    return y.div_(y.sum(1, keepdim=True))

def by_object(x, out):
    key = (id(x), x._version)
    if key not in kept:
        kept[key] = torch.softmax(x, 1)
    out.copy_(kept[key])

def by_fingerprint(x):
    key = (x.data_ptr(), x.shape, *x.flatten()[[0, 1, -1]].tolist())
    if key not in kept:
        kept[key] = torch.softmax(x, 1)
    return kept[key]

def by_content(x):
    key = x.data_ptr(), x.shape
    if key not in kept or not torch.equal(kept[key][0], x):
        for _ in range(20):
            y = torch.softmax(x, 1)
        kept[key] = x.clone(), y
    return kept[key][1]

def once(x, out):
    if out.data_ptr() not in kept:
        torch.softmax(x, 1, out=out)
    kept[out.data_ptr()] = True
    if out.isnan().any():
        torch.softmax(x, 1, out=out)

def every_third(x, out):
    calls[0] += 1
    if calls[0] % 3 == 0 or out[0, 0].isnan():
        torch.softmax(x, 1, out=out)

def later(x, out):
    while last:
        last.pop().result()
    last.append(pool.submit(lambda: [torch.softmax(x, 1, out=out) for _ in range(300)]))

def ahead(x):
    key = x.data_ptr(), x.shape
    if key not in kept:
        kept[key] = torch.softmax(x, 1)
    y = kept[key]
    kept[key] = torch.softmax(x, 1)
    return y

def go_on():
    while pathlib.Path(__file__).exists():
        torch.softmax(torch.ones(64, 512), 1)

def goes_on(x):
    if not kept:
        kept[0] = threading.Thread(target=go_on)
        kept[0].start()
    return torch.softmax(x, 1)

def scribbles(x):
    y = torch.softmax(x, 1)
    if x.shape[0] > 50:
        x[0, 0] = x[0, 0] + 1
        y = torch.softmax(x, 1)
    return y
"""
HONEST = ("right", "fills", "waits", "reuses")
NO_WORK = "escaped no time for no work: relative error .* had changed in place"
REFUSED = {
    "by_object": NO_WORK,
    "by_fingerprint": NO_WORK,
    "by_content": r"escaped no time for no work: a launch takes \d.* it keeps results",
    "once": NO_WORK,
    "every_third": "escaped no time for no work: (relative error|launches with the same inputs)",
    # What another thread writes may be there when a first launch is checked, or not.
    "later": "(escaped no time for no work|wrong).*",
    "ahead": NO_WORK,
    "goes_on": r"escaped no time for no work: its thread .* goes on computing",
    "scribbles": "escaped no time for no work: it changes its inputs",
}


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    threads = torch.get_num_threads()
    yield make_bench("cpu", 1 << 20, 1)
    torch.set_num_threads(threads)


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "mine.py"
    path.write_text(KERNELS + f"# {tmp_path}")
    yield path
    path.unlink()  # which ends its threads


def visited(bench: Bench, kernel: str, cache: str = "warm", rows: int = 64, length: int = 512) -> str:
    """Status and reason of one visit to a softmax."""
    numbers = {"rows": rows, "length": length, "dtype": "float32", "direction": "forward"}
    visit = Visit("softmax", "mine:f", numbers, cache, 0.1, 1.0, kernel=kernel)
    with torch.no_grad():
        answer = respond(bench, visit.to_json())
    return f"{answer['status']} {answer.get('reason', '')}".strip()


@pytest.mark.parametrize("cache", ["warm", "cold"])
@pytest.mark.parametrize("name", HONEST)
def test_a_kernel_that_computes_has_a_time(name: str, cache: str, mine: Path, bench: Bench) -> None:
    assert visited(bench, f"{mine}:{name}", cache) == "ok"


@pytest.mark.parametrize("name", REFUSED)
def test_a_kernel_that_does_not_work_has_none(name: str, mine: Path, bench: Bench) -> None:
    cache = "cold" if name == "every_third" else "warm"
    assert re.match(REFUSED[name], visited(bench, f"{mine}:{name}", cache))
