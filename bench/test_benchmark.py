"""The tests that `pytest bench/` collects. Nothing is timed here: bench/pytest_plugin.py measures before.

With --benchmark they are the cases of the sweeps, whose rows each test shows to pytest-benchmark; without,
every implementation on this device at a few of its own awkward examples (ROOFBENCH_DEEP=1: at all of them),
compared with its float64 reference. Cases are passed as plain text, since pytest-benchmark writes parameters
into its JSON.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from bench.cli.pytest_fixture import TIMER, replay
from bench.pytest_plugin import RUN, examples
from bench.store.schema import Measurement


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Cases for test_measure under --benchmark, examples for test_correct without.

    Explicit ids keep their names: pytest would number those that it finds too long, which -k cannot select.
    """
    config = metafunc.config
    if "case" in metafunc.fixturenames:
        names = list(config.stash[RUN].cases)
        metafunc.parametrize("case", names, ids=names)
    if "example" in metafunc.fixturenames:  # asking for them starts the worker
        names = [] if config.option.bench_run else examples(config).names
        metafunc.parametrize("example", names, ids=names)


@pytest.mark.benchmark(timer=TIMER)
def test_measure(case: str, request: pytest.FixtureRequest) -> None:
    """One row, measured and written before the tests began, is shown and replayed to pytest-benchmark."""
    run = request.config.stash[RUN]
    if (found := run.flagged.get(run.cases[case].key)) is None:
        pytest.skip(run.stopped or "there was no time for it")
    row, flags = found
    if row.status in ("unsupported", "skipped"):
        pytest.skip(row.reason)
    if row.status != "ok":
        pytest.fail(f"{row.status}: {row.reason}", pytrace=False)
    assert row.samples_s is not None and row.launches is not None
    benchmark: Any = request.getfixturevalue("benchmark")
    benchmark.group = row.sweep
    benchmark.extra_info.update(extra_info(row, flags))
    replay(benchmark, row.samples_s, row.launches)


def extra_info(row: Measurement, flags: list[str]) -> dict[str, Any]:
    """Facts of a row for pytest-benchmark's JSON: plain values, nothing infinite."""
    names = ["device", "device_id", "run_id", "clock", "cache", "protocol", "regime", "visits", "status"]
    names += ["stop", "settled", "threads", "flop", "byte", "low_s", "high_s", "relative_error"]
    info = {"flags": flags, **{name: getattr(row, name) for name in [*names, "configuration"]}}
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in info.items()}


def test_correct(example: str, request: pytest.FixtureRequest) -> None:
    """An untimed launch into poisoned outputs agrees with the reference."""
    result = examples(request.config).check(example)
    if result.status == "unsupported":
        pytest.skip(result.reason)
    if result.status != "ok":
        pytest.fail(f"{result.status}: {result.reason}", pytrace=False)
