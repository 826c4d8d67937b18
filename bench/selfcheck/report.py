"""The report of `python -m bench doctor`: what it prints, and the JSON that it writes."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from bench.device.detect import Device
from bench.environment.dependencies import version
from bench.runner.rows import commit
from bench.selfcheck.finding import VERDICTS, Finding, Level, exit_code
from bench.selfcheck.groups import Examination, GroupOutcome, applicable, starts_a_worker
from bench.selfcheck.installation import torch_built_for

STYLES: dict[Level, str] = {"PASS": "green", "WARN": "yellow", "FAIL": "bold red"}
WIDTH = 100
"""Columns at most: longer lines are hard to read."""


def parent_facts(unusable_gpu: str) -> dict[str, Any]:
    """Facts of the process that a person started, for the groups; without importing torch.

    torch's version is read from its own file, as the worker reads it: the metadata of a CUDA wheel from PyPI
    says 2.11.0 where torch says 2.11.0+cu130.
    """
    facts = {"python": platform.python_version(), "executable": sys.executable, "unusable_gpu": unusable_gpu}
    torch = str(torch_built_for().get("__version__", ""))
    return facts | {"torch": torch, "triton": version("triton") or ""}


def run(
    device: Device,
    unusable_gpu: str,
    quick: bool,
    console: Console,
    keep: Callable[[list[GroupOutcome]], None],
) -> int:
    """Run every group and show its findings; returns the exit code.

    `keep` is called after each group with all outcomes so far.
    """
    console.width = min(console.width, WIDTH)
    console.print(Text(f"roofbench doctor: {device.name}, {'a quick look' if quick else 'a full look'}"))
    outcomes: list[GroupOutcome] = []
    examination = Examination(device, parent_facts(unusable_gpu))
    with console.status("looking; this takes about a minute"):
        for outcome in examination.outcomes(applicable(device.kind, quick)):
            outcomes.append(outcome)
            show(console, outcome)
            keep(outcomes)
    code = exit_code(all_findings(outcomes))
    console.print(Text(verdict(outcomes), style=STYLES[("PASS", "WARN", "FAIL")[code]]))
    return code


def all_findings(outcomes: Iterable[GroupOutcome]) -> list[Finding]:
    """The findings of all groups, in order."""
    return [finding for outcome in outcomes for finding in outcome.findings]


def show(console: Console, outcome: GroupOutcome) -> None:
    """The group's title, then a line for each finding, with its remedy below."""
    console.print(Text(f"\n{outcome.group.title}, {outcome.seconds:.1f} s", style="bold"))
    columns = Column(width=4), Column(width=6, justify="right"), Column(width=18), Column(ratio=1)
    lines = Table.grid(*columns, padding=(0, 1))
    for finding in outcome.findings:
        words = Text(finding.sentence)
        if finding.remedy:
            words.append(f"\nRemedy: {finding.remedy}", style="italic")
        level = Text(finding.level, style=STYLES[finding.level])
        lines.add_row(level, f"{finding.seconds:.1f} s", Text(finding.name), words)
    console.print(lines)


def verdict(outcomes: list[GroupOutcome]) -> str:
    """The last line: `healthy (exit code 0): 12 PASS, 0 WARN, 0 FAIL`."""
    findings = all_findings(outcomes)
    levels = [finding.level for finding in findings]
    counts = ", ".join(f"{levels.count(level)} {level}" for level in STYLES)
    code = exit_code(findings)
    if not starts_a_worker(findings):
        counts += "; nothing else was checked, since no worker starts"
    return f"\n{VERDICTS[code]} (exit code {code}): {counts}"


def report(device: Device, quick: bool, outcomes: list[GroupOutcome], seconds: float) -> str:
    """All findings as JSON."""
    findings = all_findings(outcomes)
    code = exit_code(findings)
    versions: dict[str, Any] = {"roofbench": commit(), "driver": device.driver}
    for finding in findings:
        versions |= finding.numbers.get("versions", {})
    facts = ("kind", "name", "slug", "id", "sm_count", "memory_byte", "cache_byte")
    content = {
        "verdict": VERDICTS[code],
        "exit_code": code,
        "quick": quick,
        "seconds": seconds,
        "device": {name: getattr(device, name) for name in facts},
        "versions": versions,
        "groups": [outcome.json() for outcome in outcomes],
    }
    return json.dumps(content, indent=1) + "\n"
