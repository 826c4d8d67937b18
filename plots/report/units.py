"""The section on several units of a kind: which are slow, in what, by how much, and where they stand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from bench.fleet.judge import ALL, TOGETHER, JudgedFleet, judge
from bench.fleet.observed import natural, read
from bench.fleet.report import measured, sentences, slow_cells
from bench.format import change_text, count_text
from bench.judge.work_class import WorkClass
from plots.base import style
from plots.report.section import Results, Section, filled, svg

LOOKS = {
    "usual": (style.GREY, "o", 9.0),
    "in a slow node": (style.WINE, "D", 16.0),
    "slow": (style.VERMILLION, "s", 22.0),
}
"""State of a unit -> colour, marker and its area in points^2."""
WIDTH_IN, PANEL_IN = 10.5, 1.75
"""Width of a figure, and height of its rows of panels."""
MOST_LABELS = 4
"""Slow units that are named in a panel, the slowest first; the table names all."""
ROOM = 0.35
"""Share of the units' range that is left free above them for names."""
WORKS = [work.value for work in WorkClass]
SAYS = "Time of each unit over the median unit's, by kind of work, units in the order of their nodes"


def section(results: Results) -> Section | None:
    """The section on the units of each kind among `results.files`; None if no kind has several."""
    fleet = read(results.files)
    several = [kind for kind, count in fleet.kinds.items() if count > 1]
    if not several:
        return None
    judged = judge(fleet)
    return Section(
        "Units",
        "units",
        filled(
            "units.html.j2",
            lead=_lead(judged),
            measured=measured(judged),
            sentences=list(sentences(judged)),
            slow=[slow_cells(each) for each in judged.slow],
            figures=[
                (kind, svg(_figure(judged, kind), f"{SAYS}: {kind}"))
                for kind in several
                if len(judged.effects[kind])
            ],
        ),
    )


def _lead(judged: JudgedFleet) -> str:
    """How many are slow, in a sentence."""
    every = count_text(len(judged.fleet.units), "unit")
    if not judged.spread:
        return f"{every}: too few of a kind to say which of them is slow."
    units = sum(each.unit is not None for each in judged.slow)
    nodes = len(judged.slow) - units
    whole = f", and {count_text(nodes, 'node')} as a whole" if nodes else ""
    return f"Of {every} {units or 'none'} {'is' if units < 2 else 'are'} slow{whole}."


def _figure(judged: JudgedFleet, kind: str) -> Figure:
    """A panel for each kind of work, alone on the left, with all GPUs of the node at work on the right."""
    effect, units = judged.effects[kind], judged.fleet.units
    order = sorted(effect.index, key=lambda unit: (natural(units[unit].node), units[unit].slot))
    nodes = [units[unit].node for unit in order]
    works = [work for work in WORKS if work in effect or work + TOGETHER in effect]
    manners = [end for end in ("", TOGETHER) if any(work + end in effect for work in works)]
    states = {str(work): _states(judged, kind, order, str(work)) for work in effect}
    with style.look():
        figure = Figure(figsize=(WIDTH_IN, 0.7 + PANEL_IN * len(works)), layout="constrained")
        grid = figure.subplots(len(works), len(manners), squeeze=False, sharex=True, sharey="row")
        for axes, work in zip(grid, works, strict=True):
            for panel, end in zip(axes, manners, strict=True):
                panel.set_title(f"{work}, {'all GPUs of the node at work' if end else 'alone'}", fontsize=9)
                _nodes(panel, nodes)
                if work + end in effect:
                    _panel(panel, judged, kind, order, work + end, states[work + end])
            low, high = axes[0].get_ylim()
            axes[0].set_ylim(low, high + ROOM * (high - low))
            axes[0].set_ylabel("time, % over\nthe median unit", fontsize=8)
        for panel in grid[-1]:
            panel.set_xlabel(f"{count_text(len(order), 'unit')} in the order of nodes, a band each")
        shown = [state for state in LOOKS if any(state in of for of in states.values())]
        if len(shown) > 1:
            handles = [style.marker(state, *LOOKS[state][:2]) for state in shown]
            figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
    return figure


def _states(judged: JudgedFleet, kind: str, order: list[str], work: str) -> list[str]:
    """What is said of each unit in a kind of work, a key of LOOKS."""
    mine = [each for each in judged.slow if each.kind == kind]
    slow = {each.unit.id for each in mine if each.unit and (work in each.slow_in or each.work == ALL)}
    nodes = {each.node for each in mine if not each.unit}
    units = judged.fleet.units
    return [
        "slow" if unit in slow else "in a slow node" if units[unit].node in nodes else "usual"
        for unit in order
    ]


def _nodes(axes: Axes, nodes: Sequence[str]) -> None:
    """A band for every other node."""
    begins = [at for at, node in enumerate(nodes) if at == 0 or nodes[at - 1] != node] + [len(nodes)]
    for low, high in zip(begins[1::2], begins[2::2], strict=False):
        axes.axvspan(low - 0.5, high - 0.5, color=style.FAINT, lw=0, alpha=0.6)
    axes.axhline(0, color=style.BLACK, lw=0.6)
    axes.set_xlim(-1, len(nodes))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}" if value else "0"))
    axes.tick_params(axis="x", labelbottom=False, bottom=False)


def _panel(
    axes: Axes, judged: JudgedFleet, kind: str, order: list[str], work: str, states: Sequence[str]
) -> None:
    """The units in one kind of work, with their intervals; the slowest have their names beside them."""
    effect, half = (
        table[work].reindex(order).to_numpy() for table in (judged.effects[kind], judged.half[kind])
    )
    percent, at = 100 * np.expm1(effect), np.arange(len(order))
    for state, (color, marker, area) in LOOKS.items():
        mine = np.array(states) == state
        axes.vlines(
            at[mine],
            percent[mine] - 100 * half[mine],
            percent[mine] + 100 * half[mine],
            color,
            lw=0.6,
            alpha=0.5,
        )
        axes.scatter(at[mine], percent[mine], s=area, color=color, marker=marker, lw=0, zorder=3)
    slow = [index for index in np.argsort(-percent) if states[index] == "slow"][:MOST_LABELS]
    for index in slow:
        text = f"{judged.fleet.units[order[index]].name} {change_text(1 + percent[index] / 100)}"
        side, shift = ("right", -4) if index > len(order) / 2 else ("left", 4)
        axes.annotate(
            text, (index, percent[index]), (shift, 3), textcoords="offset points", ha=side, fontsize=7
        )
