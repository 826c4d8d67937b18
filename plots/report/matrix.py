"""The table of the guides' rules by devices: each cell with its effects, their sources and counts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from bench.device.datasheet import datasheets, slug_of
from bench.judge.achieved import by_age
from bench.judge.claims import WITH_EFFECT
from bench.sweep.experiments import HALF, LACKING, RULES
from plots.figures.rules import cells
from plots.report.section import filled, packed

Verdicts = Mapping[str, Mapping[str, Sequence[Sequence[Any]]]]
"""Rule -> device -> verdicts, as `python -m bench claims --by rule --json` has them under `rules`."""


def table(verdicts: Verdicts) -> Markup:
    """The table with its filters, which `report.js` fills: devices by age, rules by number."""
    sheets = {slug_of(name): sheet for sheet in datasheets() for name in sheet.match}
    slugs = by_age({slug: sheets.get(slug) for of in verdicts.values() for slug in of})
    names = [sheets[slug].slug if slug in sheets else slug for slug in slugs]
    held = cells(verdicts)
    rules = [
        {
            "number": rule,
            "says": RULES[rule],
            "cells": {
                slug: {"share": held[rule, slug].held, "of": of} for slug, of in verdicts[str(rule)].items()
            },
        }
        for rule in RULES
        if str(rule) in verdicts
    ]
    content = {"devices": list(zip(slugs, names, strict=True)), "rules": rules}
    silent = [
        (rule, says, LACKING.get(rule, "")) for rule, says in RULES.items() if str(rule) not in verdicts
    ]
    return filled(
        "matrix.html.j2",
        content=packed(json.dumps(content).encode()),
        devices=content["devices"],
        words=WITH_EFFECT,
        silent=silent,
        half={rule: lacks for rule, lacks in HALF.items() if str(rule) in verdicts},
    )
