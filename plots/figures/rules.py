"""Figure of the guides' rules by GPUs: supported, contradicted, undecided, or never tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from bench.device.datasheet import Datasheet, datasheets, slug_of
from bench.judge.achieved import by_age
from bench.sweep.experiments import RULES
from plots.base import style
from plots.base.page import Page


class Cell(NamedTuple):
    """What a device says of a rule."""

    held: float | None
    """Share of what was compared that is as the rule says: the mean over decided claims, None without one."""
    of_one_size: bool
    """Whether the alignment of one size alone was tested; a rule may be about several."""


Cells = Mapping[tuple[int, str], Cell]
"""(rule, device) -> what the device says of the rule."""
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
        (int(rule), device): _cell(judged) for rule, on in verdicts.items() for device, judged in on.items()
    }


def _cell(judged: Sequence[Sequence[Any]]) -> Cell:
    decided = [(hold, fail) for verdict, *_, hold, fail, _ in judged if verdict != "UNDECIDED"]
    held = [hold / (hold + fail) for hold, fail in decided]
    aligned = {each[-1] for each in judged}
    one_size = len(aligned) == 1 and len(aligned.pop().split()) == 1
    return Cell(sum(held) / len(held) if held else None, one_size)


def draw(of: Cells, about: str) -> Page:
    """A row for each rule that a device decides, a column for each device that decides enough of them."""
    sheets = {slug_of(name): sheet for sheet in datasheets() for name in sheet.match}
    decided = [key for key, cell in of.items() if key[1] in sheets and cell.held is not None]
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
    flat = Line2D([], [], color=style.GREY, lw=3, label="flat: only one size's alignment was tested")
    page.legend([*(Rectangle((0, 0), 1, 1, color=color, label=word) for word, color in looks.items()), flat])
    grid = page.grid(2, 2, width_ratios=(_WORDS_IN - Page.LEFT, _CELL_IN * len(devices)),
                     height_ratios=(_NAMES_IN, _ROW_IN * len(rules)), wspace=0.0, hspace=0.0)  # fmt: skip
    axes = page.figure.add_subplot(grid[1, 1])
    axes.grid(visible=False)
    for y, rule in enumerate(rules):
        for x, device in enumerate(devices):
            if (rule, device) in of:
                _draw(axes, x, y, of[rule, device])
    axes.set(xlim=(0, len(devices)), ylim=(len(rules), 0))
    axes.set_yticks([y + 0.5 for y in range(len(rules))], [f"{RULES[rule]}  {rule}" for rule in rules])
    axes.set_xticks([x + 0.5 for x in range(len(devices))], [sheets[device].slug for device in devices])
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


def _draw(axes: Axes, x: int, y: int, cell: Cell) -> None:
    held, height = cell.held, 0.4 if cell.of_one_size else 0.88
    parts = [(1.0, UNDECIDED)] if held is None else [(held, HOLDS), (1 - held, FAILS)]
    left = x + 0.06
    for share, color in parts:
        axes.add_patch(Rectangle((left, y + (1 - height) / 2), 0.88 * share, height, color=color, lw=0))
        left += 0.88 * share
