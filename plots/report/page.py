"""The report, one HTML file that needs nothing else: its data, its charts and the library that draws them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench.errors import UserError
from bench.format import count_text
from bench.judge.claims import JudgedClaim
from bench.judge.findings import findings
from bench.judge.flags import FLAGS
from bench.judge.frame import DeviceRun
from bench.store.parquet import Sweeps
from bench.store.schema import RunKey
from bench.sweep.experiments import RULES
from plots.base import shell, style
from plots.base.vega import inlined, library
from plots.figures import roofs
from plots.report import charts, tables
from plots.report.cases import cases, packed, rounded, untimed
from plots.report.experiments import experiments
from plots.report.section import Section

MOST_ROWS = 60_000
"""Timed cases of one page; a browser is slow with more."""
DENSE = 5_000
"""Cases from which on the charts of all of them show dots."""
DECIDED = ("SUPPORTED", "CONTRADICTED", "UNDECIDED")
"""Verdicts with an effect, in the order of the page."""
_ROOF_AT = (1e-2, 1e3)
"""Intensities between which roofs are drawn, FLOP/byte, if no case lies beyond."""


def html(
    runs: Sequence[DeviceRun],
    sweeps: Mapping[RunKey, Sweeps],
    judged: Sequence[tuple[Sequence[DeviceRun], Sequence[JudgedClaim]]],
    known: Callable[[str], bool],
    more: Sequence[Section] = (),
) -> str:
    """The page about these runs, the first of which stands first.

    `sweeps` is what each run's sweeps declared; `judged` are the verdicts on all of them, with the runs that
    were judged together; `known` says whether this checkout has a sweep.
    UserError if there are too many timed cases for a page.
    """
    rows = cases(runs, known)
    if len(rows) > MOST_ROWS:
        raise UserError(
            f"{count_text(len(rows), 'timed case')} are too many for one page; give fewer results, of "
            f"{MOST_ROWS:,} cases at most"
        )
    of_runs = [sweeps.get(run.key, {}) for run in runs]
    places = {key: place for place, key in enumerate(rows.index)}
    names = list(dict.fromkeys(run.device_name for run in runs))
    whose = "run" if len(names) == 1 < len(runs) else "device"
    labels = [run.name if whose == "run" else run.device for run in runs]
    labelled = list(zip(runs, labels, strict=True))
    label_of = {run.key: label for run, label in labelled}
    groups = sorted(judged, key=lambda group: min(runs.index(run) for run in group[0]))
    verdicts_on = {run.key: of_group for group, of_group in groups for run in group}
    rows["device"] = [labels[number] for number in rows.index.get_level_values("run")]
    drawn = [
        experiment | {"device": labels[number]}
        for number, run in enumerate(runs)
        for experiment in experiments(run, number, of_runs[number], verdicts_on[run.key], places)
    ]
    points = rows[rows["intensity"].notna() & rows["flop_per_s"].notna()]
    reached = [*_ROOF_AT, *points["intensity"]]
    dense = len(rows) > DENSE
    content = {
        "cases": packed(rows),
        "roofline": charts.roofline(list(_roofs(runs, (min(reached), max(reached)))), dense),
        "ratios": charts.ratios(dense),
        "experiments": [
            [{"spec": of.spec, "quantity": of.quantity, "points": of.points} for of in each["charts"]]
            for each in drawn
        ],
        "flags": {flag.name: flag.means for flag in FLAGS},
        "colours": _colours(rows),
        "whose": whose,
    }
    heads = tables.heads(runs)
    if whose == "run":
        heads = [head._replace(name=label) for head, label in zip(heads, labels, strict=True)]
    return shell.page(
        Path(__file__).with_name("report.html.j2"),
        title=f"roofbench: {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}",
        heads=heads,
        numbers=list(dict.fromkeys(what for head in heads for what in head.numbers)),
        findings=findings(runs),
        lines=tables.lines(runs),
        gained=tables.gained(runs),
        base=runs[0].device,
        devices=list(dict.fromkeys(run.device for run in runs))[1:],
        parts=_claims([of_group for _, of_group in groups]),
        groups=[label_of[group[0].key] if len(group) == 1 else group[0].device for group, _ in groups],
        rules=RULES,
        decided=DECIDED,
        experiments=[list(of) for _, of in itertools.groupby(drawn, key=lambda each: each["device"])],
        rivals=[(label, each) for run, label in labelled for each in tables.rivals(run)],
        untimed=untimed(runs),
        timed=len(rows),
        filters=_filters(rows, len(runs), whose),
        several=len(runs) > 1,
        whose=whose,
        imported=any(run.imported for run in runs),
        predicted=bool(rows["ratio"].notna().any()),
        more=more,
        content=inlined(content),
        library=library(),
    )


def _roofs(runs: Sequence[DeviceRun], span: tuple[float, float]) -> Iterator[dict[str, Any]]:
    """Both ends and the ridge of every roof with a peak, in FLOP/byte and FLOP/s; types may share one."""
    named = len({run.device for run in runs}) > 1
    dtypes: dict[tuple[str, roofs.Roof], dict[str, None]] = {}
    for run in runs:
        frame = run.frame
        timed = frame[frame["flop_per_s"].notna() & (frame["role"] == "measurement")]
        for (dtype, condition), points in timed.groupby(["dtype", "condition"], sort=True):
            if condition != "cold" and run.ceilings:
                continue  # the caches' own roofs are in the figures
            for roof in roofs.of(run, points, str(dtype), str(condition)):
                if roof.kind != "cached" and roof.ridge:
                    whose = run.device_name if named else ""
                    dtypes.setdefault((whose, roof), {})[str(dtype)] = None
    for number, ((whose, roof), of) in enumerate(dtypes.items()):
        source = "measured" if roof.kind == "measured" else "datasheet"
        label = ", ".join(filter(None, [whose, *of, source]))
        across = [span[0], roof.ridge or 0.0, max(span[1], (roof.ridge or 0.0) * 4)]
        heights = rounded(roof.flops(np.array(across)))
        for x, y, words in zip(rounded(across), heights, ("", "", label), strict=True):
            yield {"roof": number, "kind": source, "intensity": x, "flop_per_s": y, "label": words}


def _claims(judged: Sequence[Sequence[JudgedClaim]]) -> list[list[dict[str, Any]]]:
    """Claims that some run decides, claims whose interval holds the bar, and those without an effect.

    Each has its sweep and its `verdicts` in the order of the groups, None where a group lacks the sweep.
    """
    verdicts: dict[tuple[str, str], dict[int, JudgedClaim]] = {}
    for number, of_group in enumerate(judged):
        for each in of_group:
            verdicts.setdefault((each.claim.id, each.declared.name), {})[number] = each
    rows = []
    for (name, sweep), by_group in verdicts.items():
        claim = next(iter(by_group.values())).claim
        words = (DECIDED.index(each.verdict) for each in by_group.values() if each.verdict in DECIDED)
        of_groups = [by_group.get(number) for number in range(len(judged))]
        row = {"claim": claim, "sweep": sweep, "verdicts": of_groups}
        rows.append((min(words, default=len(DECIDED)), name, row))
    rows.sort(key=lambda row: row[:2])
    return [[row for first, _, row in rows if first in part] for part in ((0, 1), (2,), (3,))]


def _filters(rows: pd.DataFrame, runs: int, whose: str) -> list[tuple[str, str, list[tuple[str, int]]]]:
    """(column, words for it, its values with their counts) of each filter that has a choice."""
    words = {"device": whose, "operator": "operator", "implementation": "implementation"}
    words |= {"dtype": "data type", "bound_by": "bound by", "flags": "flag"}
    filters = []
    for column, name in words.items():
        values = rows[column].str.split().explode() if column == "flags" else rows[column]
        counts = Counter(filter(None, values.dropna()))
        if column == "flags":
            counts["(none)"] = int((rows["flags"] == "").sum())
        if counts and (column != "device" or runs > 1):
            filters.append((column, name, sorted(counts.items())))
    return filters


def _colours(rows: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Column that points can be coloured by -> value -> colour, those of the figures where they have one."""
    looks = {
        "operator": style.of_operator,
        "implementation": style.of_implementation,
        "device": style.of_device,
    }
    colours = {}
    for column in ("operator", "implementation", "dtype", "bound_by", "device"):
        values = sorted(set(rows[column]))
        own = [looks[column](value).color for value in values] if column in looks else style.COLORS
        colours[column] = dict(zip(values, itertools.cycle(own), strict=False))
    return colours
