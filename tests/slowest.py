"""The slowest tests: `slowest.txt` lists them, and a run in several processes begins with their files.

    make test-slowest

times every test on this machine and writes the list again: seconds of each file that takes LEAST_S, and below
it those of its tests that do. A file stays in one process, so that what its tests share is made once; the
longest come first, so that no processor waits for one of them at the end.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

LIST = Path(__file__).with_suffix(".txt")
LEAST_S = 3.0


def longest_first(items: list[pytest.Item]) -> None:
    """Sort tests by what the list says of their files; those that it does not name keep their order."""
    lines = [line.split() for line in LIST.read_text().splitlines() if line[:1] != "#"]
    seconds = {name: float(second) for second, name in lines}
    items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], 0.0))


class Seconds:
    """A plugin of pytest that adds up what tests take, and writes the list."""

    def __init__(self) -> None:
        self._of: dict[str, Counter[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test, its setup or its teardown; the cases of a test count together."""
        file, _, name = report.nodeid.partition("[")[0].partition("::")
        self._of.setdefault(file, Counter())[name] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the list, by files and within them by tests, the longest first."""
        total_s = sum(map(Counter.total, self._of.values()))
        machine = f"{os.cpu_count()} processors ({platform.machine()})"
        lines = [
            f"# {datetime.now(UTC):%Y-%m-%d}, {machine}: all tests take {total_s:.0f} s of one of them.",
            f"# Seconds of files that take {LEAST_S:g} and of their tests, by `make test-slowest`.",
        ]
        for file, tests in sorted(self._of.items(), key=lambda each: -each[1].total()):
            if tests.total() >= LEAST_S:
                lines.append(f"{tests.total():7.1f} {file}")
                lines += [f"{s:7.1f} {file}::{name}" for name, s in tests.most_common() if s >= LEAST_S]
        LIST.write_text("\n".join(lines) + "\n")
