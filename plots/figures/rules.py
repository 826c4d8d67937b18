"""Figure of the guides' rules by GPUs: supported, contradicted, undecided, or never tried."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from bench.device.datasheet import Datasheet, datasheets, slug_of
from bench.judge.achieved import by_age
from bench.sweep.experiments import RULES
from plots.base import style
from plots.base.page import Page

Cells = Mapping[tuple[int, str], float | None]
"""(rule, device) -> share of what was compared that is as the rule says: the mean over the claims that are
decided, None if none is."""
HOLDS, FAILS, UNDECIDED = "#2c7fb8", "#d95f0e", "#dddddd"
LEAST_RULES = 5
"""Rules that are decided on a device that has a column."""
ARCHITECTURES = {
    "5": "Maxwell 2014", "6": "Pascal 2016", "7.0": "Volta 2017", "7.5": "Turing 2018", "8.9": "Ada 2022",
    "8": "Ampere 2020", "9": "Hopper 2022", "1": "Blackwell 2024", "": "AMD",
}  # fmt: skip
"""Beginning of a compute capability -> architecture, and the year of its first GPU. AMD's GPUs have none."""
_CELL_IN, _ROW_IN, _WORDS_IN, _NAMES_IN, _AGES_IN = 0.18, 0.19, 4.5, 1.3, 0.95


def cells(verdicts: Mapping[str, Mapping[str, Sequence[Sequence[Any]]]]) -> Cells:
    """The cells of a table by `python -m bench claims --by rule --json`: its value of `rules`."""
    return {
        (int(rule), device): _share(judged) for rule, on in verdicts.items() for device, judged in on.items()
    }


def _share(judged: Sequence[Sequence[Any]]) -> float | None:
    decided = [(hold, fail) for verdict, *_, hold, fail in judged if verdict != "UNDECIDED"]
    held = [hold / (hold + fail) for hold, fail in decided]
    return sum(held) / len(held) if held else None


def draw(of: Cells, about: str) -> Page:
    """A row for each rule that a device decides, a column for each device that decides enough of them."""
    sheets = {slug_of(name): sheet for sheet in datasheets() for name in sheet.match}
    decided = [(rule, device) for (rule, device), held in of.items() if device in sheets and held is not None]
    per_device = Counter(device for _, device in decided)
    devices = by_age({name: sheets[name] for name, count in per_device.items() if count >= LEAST_RULES})
    rules = [rule for rule in RULES if any((rule, device) in decided for device in devices)]
    page = Page(
        Page.RIGHT + _WORDS_IN + _CELL_IN * len(devices),
        _NAMES_IN + _ROW_IN * len(rules),
        "What GPUs say of the rules in NVIDIA's guides",
        f"{len(rules)} rules on the {len(devices)} GPUs that decide {LEAST_RULES} or more of them; {about}",
        ["Width of a colour: share of the pairs, lines or rows that are decided. Empty: never tried."],
        under_in=_AGES_IN,
    )
    looks = {"as the rule says": HOLDS, "not as it says": FAILS, "undecided": UNDECIDED}
    page.legend([Rectangle((0, 0), 1, 1, color=color, label=word) for word, color in looks.items()])
    grid = page.grid(2, 2, width_ratios=(_WORDS_IN - Page.LEFT, _CELL_IN * len(devices)),
                     height_ratios=(_NAMES_IN, _ROW_IN * len(rules)), wspace=0.0, hspace=0.0)  # fmt: skip
    axes = page.figure.add_subplot(grid[1, 1])
    axes.grid(visible=False)
    for y, rule in enumerate(rules):
        for x, device in enumerate(devices):
            if (rule, device) in of:
                _cell(axes, x, y, of[rule, device])
    axes.set(xlim=(0, len(devices)), ylim=(len(rules), 0))
    axes.set_yticks([y + 0.5 for y in range(len(rules))], [f"{RULES[rule]}  {rule}" for rule in rules])
    names = [re.sub("Blackwell | Server| Frontier| Edition", "", style.short_name(sheets[device].name))
             for device in devices]  # fmt: skip
    axes.set_xticks([x + 0.5 for x in range(len(devices))], names)
    axes.xaxis.tick_top()
    axes.tick_params(axis="x", rotation=90)
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)
    for name, group in groupby(range(len(devices)), lambda at: architecture(sheets[devices[at]])):
        places = list(group)
        if places[0]:
            axes.axvline(places[0], color=style.GREY, lw=0.6, ymax=1.0)
        middle = (places[0] + places[-1] + 1) / 2
        axes.text(middle, len(rules) + 0.2, name, fontsize=8, rotation=90, ha="center", va="top")
    return page


def architecture(sheet: Datasheet) -> str:
    """Name and year of a GPU's architecture."""
    capability = ".".join(map(str, sheet.capability or ()))
    return next(name for begin, name in ARCHITECTURES.items() if capability.startswith(begin))


def _cell(axes: Axes, x: int, y: int, held: float | None) -> None:
    parts = [(1.0, UNDECIDED)] if held is None else [(held, HOLDS), (1 - held, FAILS)]
    left = x + 0.06
    for share, color in parts:
        axes.add_patch(Rectangle((left, y + 0.06), 0.88 * share, 0.88, color=color, lw=0))
        left += 0.88 * share
