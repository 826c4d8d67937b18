"""Is this device as fast as its kind should be, as a page: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.accept.judge import FAIL, JudgedKind
from bench.accept.report import MEANS, figure, overall, range_text, sentence
from bench.case_name import row_name
from bench.format import half_text, share_text
from plots.base.shell import page

ROOM = 1.04
"""The scale of a bar ends so much beyond its largest figure."""


def html(judged: Sequence[JudgedKind]) -> str:
    """The page about one unit."""
    row = judged[0].row
    return page(
        Path(__file__).with_name("accept.html.j2"),
        title=f"{row.device_name}: as fast as its kind should be?",
        verdict=overall(judged),
        sentence=sentence(judged),
        lines=list(_lines(judged)),
        facts=list(_facts(row)),
        fail=share_text(FAIL),
    )


def _lines(judged: Sequence[JudgedKind]) -> Iterator[dict[str, Any]]:
    """What the template says of each kind of work; places are percent of the bar's width."""
    for each in judged:
        row, expects = each.row, each.expects
        ends = [row.rate_high, each.promised or 0.0, expects.high if expects else 0.0]
        scale = 100 / (ROOM * max(ends))
        words = figure(each.kind, row.rate)
        yield dict(
            judged=each,
            means=MEANS[each.verdict],
            measured=words,
            half=half_text(row.median_s, row.low_s, row.high_s),  # of its interval
            expected=range_text(each.kind, expects),
            promised=figure(each.kind, each.promised),
            at=scale * row.rate,
            begin=scale * expects.low if expects else None,  # left end of what is expected
            width=scale * (expects.high - expects.low) if expects else 0.0,
            promised_at=scale * each.promised if each.promised else None,
            says=f"{words} measured, {range_text(each.kind, expects)} expected",  # for those who see no bar
            case=row_name(row),
            others=[(of.by, range_text(each.kind, of), of.source) for of in each.evidence],
        )


def _facts(row: object) -> Iterator[tuple[str, str]]:
    """(what, value) of the state in which the unit was."""
    names = {
        "run_id": "run",
        "driver": "driver",
        "libraries": "libraries",
        "power_limit_w": "power limit, W",
        "ecc": "ECC",
        "mig": "MIG",
        "pcie_generation": "PCIe generation",
        "pcie_width": "PCIe lanes",
        "temperature_c": "temperature, °C",
    }
    for name, what in names.items():
        value = getattr(row, name)
        if value is not None and value == value and value != "":
            yield what, f"{value:.0f}" if isinstance(value, float) else str(value)
