"""The tests that `pytest bench/` collects.

With --benchmark they are the cases of the sweeps, timed by the worker; without, every implementation on this
device at a few of its own awkward examples (--bench-all-examples: at all of them), compared with its float64
reference. Cases are passed as plain text, since pytest-benchmark writes parameters into its JSON.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from bench.pytest_plugin import RUN, examples
from bench.runner.run import Run
from bench.store.schema import Measurement


class ReplayTimer:
    """A `timer` for pytest-benchmark that replays times measured elsewhere.

    pytest-benchmark reads it before and after a round: it returns 0, then the seconds of the round. The
    table, JSON and comparisons thus hold device times, through pytest-benchmark's public interface alone.
    """

    def __init__(self) -> None:
        self._rounds_s: list[float] | None = None
        self._running = False

    def load(self, rounds_s: list[float]) -> None:
        """Set the seconds of the next rounds."""
        self._rounds_s = list(reversed(rounds_s))
        self._running = False

    def __call__(self) -> float:
        """0 at the start of a round, its seconds at the end."""
        if self._rounds_s is None:
            raise RuntimeError("this timer only replays: it cannot time `benchmark(function)`")
        self._running = not self._running
        return 0.0 if self._running else self._rounds_s.pop()


TIMER = ReplayTimer()


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
    row = run.row(case)
    if row is None:
        pytest.skip(run.stopped or "there was no time for it")
    if row.status in ("unsupported", "skipped"):
        pytest.skip(row.reason)
    if row.status != "ok":
        pytest.fail(f"{row.status}: {row.reason}", pytrace=False)
    assert row.samples_s is not None and row.launches is not None
    benchmark: Any = request.getfixturevalue("benchmark")
    benchmark.group = row.sweep
    benchmark.extra_info.update(extra_info(run, row))
    if benchmark.enabled:
        TIMER.load([sample * row.launches for sample in row.samples_s])
    benchmark.pedantic(lambda: None, rounds=len(row.samples_s), iterations=row.launches)


def extra_info(run: Run, row: Measurement) -> dict[str, Any]:
    """Facts of a row for pytest-benchmark's JSON: plain values, nothing infinite."""
    names = ["device", "device_id", "run_id", "clock", "cache", "protocol", "regime", "visits", "status"]
    names += ["stop", "settled", "threads", "flop", "byte", "low_s", "high_s", "relative_error"]
    info = {name: getattr(row, name) for name in [*names, "configuration"]}
    info["flags"] = run.flags(row)
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in info.items()}


def test_correct(example: str, request: pytest.FixtureRequest) -> None:
    """An untimed launch into poisoned outputs agrees with the reference."""
    answer = examples(request.config).check(example)
    if answer["status"] == "unsupported":
        pytest.skip(answer["reason"])
    if answer["status"] != "ok":
        pytest.fail(f"{answer['status']}: {answer['reason']}", pytrace=False)
