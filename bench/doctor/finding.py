"""A finding: what one check of the doctor observed, and what to do about it. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Level = Literal["PASS", "WARN", "FAIL"]
EXIT_CODES: dict[Level, int] = {"PASS": 0, "WARN": 1, "FAIL": 2}


@dataclass(frozen=True)
class Finding:
    """One line of the doctor."""

    level: Level
    name: str
    """Short and fixed."""
    sentence: str
    """What the check observed."""
    remedy: str = ""
    """One sentence saying what to do; never empty for WARN and FAIL."""


def passed(name: str, sentence: str) -> Finding:
    """A finding of something in order."""
    return Finding("PASS", name, sentence)


def warned(name: str, sentence: str, remedy: str) -> Finding:
    """A finding of something that leaves numbers missing, unsteady or of another kind."""
    return Finding("WARN", name, sentence, remedy)


def failed(name: str, sentence: str, remedy: str) -> Finding:
    """A finding of something that makes a run's numbers wrong, or the run impossible."""
    return Finding("FAIL", name, sentence, remedy)


def checked(name: str, good: bool, sentence: str, remedy: str) -> Finding:
    """PASS if it is `good`, else WARN with the remedy; the sentence holds either way."""
    return passed(name, sentence) if good else warned(name, sentence, remedy)


def exit_code(findings: Iterable[Finding]) -> int:
    """0 healthy, 1 degraded (some WARN), 2 unusable (some FAIL)."""
    return max((EXIT_CODES[finding.level] for finding in findings), default=0)


def outcome(row: Mapping[str, Any]) -> str:
    """The status of a row with its reason: `error: AcceleratorError: ...`."""
    return f"{row['status']}: {row['reason']}" if row.get("reason") else str(row["status"])
