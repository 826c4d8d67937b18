"""What all tests share: the seed of a run, and the tests that a run leaves to `make test-deep`.

Every run prints its seed (tests/drawing.py); `ROOFBENCH_SEED=N` repeats a run's choices and random inputs.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

# NumPy reads it as it is imported. Two threads wait for each other, busily, over matrices of 64 x 64, and
# processes of xdist share the processors already.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Nor does a run wait a minute where the machine of the tests is busy.
os.environ.setdefault("ROOFBENCH_WAIT", "0")

import numpy as np
import pytest

from tests.computed_once import computed_once
from tests.drawing import SEED, begin_run, is_deep, run_seed

SLOWEST = Path(__file__).with_name("slowest.txt")
"""The files of tests that take seconds, the longest first, by `pytest tests --durations=0`. A file stays in
one process, so that what its tests share is made once; no processor waits for one of them at the end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --deep."""
    parser.addoption(
        "--deep",
        action="store_true",
        help="Run the tests marked deep too, and every case that others draw from.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the run's seed before any test file is imported."""
    begin_run(deep=config.getoption("--deep"))
    # A shell starts what runs in its background with SIGINT ignored, and children inherit that: no test of
    # Ctrl-C would ever end.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Inductor compiles a program to try each vector instruction set that the processor has, ten seconds of a
    # fresh checkout.
    os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
    gc.disable()  # what is imported and collected from here on stays


def pytest_collection_finish() -> None:
    """Keep modules and tests from the garbage collector: half a second of each `gc.collect()` of a worker.

    What is made later is looked at a hundred times less often than usual, a tenth of all processor time, and
    whole at the end of each file.
    """
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    gc.enable()


def pytest_report_header() -> str:
    """Name the seed."""
    return f"seed: {SEED}={os.environ[SEED]}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the deep tests, unless they were asked for; several processes begin with the longest."""
    if hasattr(config, "workerinput"):
        longest = {name: place for place, name in enumerate(SLOWEST.read_text().split())}
        items.sort(key=lambda item: longest.get(item.nodeid.partition("::")[0], len(longest)))
    if is_deep():
        return
    left_out = [item for item in items if item.get_closest_marker("deep")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("deep")]


@pytest.fixture(autouse=True, scope="session")
def _children_are_runs_of_their_own() -> None:
    """A test that runs pytest in another process does not run it as a worker of xdist."""
    os.environ.pop("PYTEST_XDIST_WORKER", None)


@pytest.fixture(autouse=True, scope="session")
def _nothing_is_synced() -> Iterator[None]:
    """No test pulls the plug, and a killed process loses nothing that it has written: disks would be
    waited for thousands of times.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True, scope="module")
def _what_stays_is_not_looked_at_again() -> Iterator[None]:
    """What a file leaves behind, above all in caches, is as little to the collections of later files."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _computed_once() -> Iterator[None]:
    with computed_once():
        yield


@pytest.fixture(autouse=True)
def seed(request: pytest.FixtureRequest) -> int:
    """A test's own seed, of the run's and of the test's name without its path.

    `random` begins with it, and torch's generator in files that import torch.
    """
    print(f"{SEED}={run_seed()}")
    own = zlib.crc32(f"{run_seed()} {request.node.name}".encode())
    random.seed(own)
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(own)
    return own


@pytest.fixture
def chance(seed: int) -> np.random.Generator:
    """NumPy's generator with the test's seed."""
    return np.random.default_rng(seed)
