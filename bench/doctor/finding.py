"""A finding: what one check of the doctor observed, and what to do about it. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Level = Literal["PASS", "WARN", "FAIL"]
EXIT_CODES: dict[Level, int] = {"PASS": 0, "WARN": 1, "FAIL": 2}


@dataclass(frozen=True)
class Finding:
    """One line of the doctor."""

    level: Level
    name: str
    """Short and fixed: docs/doctor.md explains it under this name."""
    sentence: str
    """What the check observed."""
    remedy: str = ""
    """One sentence saying what to do; never empty for WARN and FAIL."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """Every number behind the sentence, in SI units; plain values that JSON can hold."""
    error: str = ""
    """The whole traceback, or another message of a library."""

    def json(self) -> dict[str, Any]:
        """The finding for the JSON file, where infinity and NaN are null."""
        return {name: _plain(value) for name, value in asdict(self).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def passed(name: str, sentence: str, **numbers: Any) -> Finding:
    """A finding of something in order."""
    return Finding("PASS", name, sentence, numbers=numbers)


def warned(name: str, sentence: str, remedy: str, **numbers: Any) -> Finding:
    """A finding of something that leaves numbers missing, unsteady or of another kind."""
    return Finding("WARN", name, sentence, remedy, numbers)


def failed(name: str, sentence: str, remedy: str, error: str = "", **numbers: Any) -> Finding:
    """A finding of something that makes a run's numbers wrong, or the run impossible."""
    return Finding("FAIL", name, sentence, remedy, numbers, error)


def checked(name: str, good: bool, sentence: str, remedy: str, **numbers: Any) -> Finding:
    """PASS if it is `good`, else WARN with the remedy; the sentence holds either way."""
    return passed(name, sentence, **numbers) if good else warned(name, sentence, remedy, **numbers)


def exit_code(findings: Iterable[Finding]) -> int:
    """0 healthy, 1 degraded (some WARN), 2 unusable (some FAIL)."""
    return max((EXIT_CODES[finding.level] for finding in findings), default=0)


def outcome(row: Mapping[str, Any]) -> str:
    """The status of a row with its reason: `error: AcceleratorError: ...`."""
    return f"{row['status']}: {row['reason']}" if row.get("reason") else str(row["status"])
