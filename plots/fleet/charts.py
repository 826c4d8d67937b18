"""Vega-Lite specifications of a fleet's charts, as JSON objects.

Their data is not in them: each names datasets of the page, which fills them in. One field is one column.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from plots.base import style
from plots.base.vega import Spec, category, faceted, layer, quantity, tooltip, wide

STATES = {
    "usual": (style.GREY, "circle"),
    "slow": (style.VERMILLION, "square"),
    "in a slow node": (style.WINE, "diamond"),
    "fast": (style.GREEN, "triangle-up"),
}
"""What is said of a unit -> colour and shape of its points."""
MANNERS = ("alone", "together")
ALL, UNNAMED = "all units", "without those named"
"""The units from which a job is drawn."""
HEIGHT, _LABEL = 190, 320
"""Height of a panel, and width of what stands above it at most, in pixels."""
EFFECTS, SLOWEST, NIGHTS = "effects", "slowest", "nights"
"""Names of datasets: a row for each unit, class and manner; for each size of a job; for each night."""
_PERCENT = "(datum.value > 0 ? '+' : '') + format(datum.value, '~g') + ' %'"
INK = "#1b1b1b"
_DOT = {"filled": True}
_WORDS_BEFORE = {"align": "right", "fontSize": 11}
"""Words that end at their point."""
_LABELLED = [{"filter": "datum.label"}]
_TOOLTIP = tooltip(
    {
        **{"unit": "unit", "text": "time over the fleet", "state": "verdict", "tags": "tags"},
        **{"serial": "serial", "clock": "SM clock", "power": "power", "heat": "temperature"},
    }
)


def sorted_units(of: str, manners: Sequence[str], states: Collection[str]) -> Spec:
    """Every unit of a class by rank with its interval, alone and together side by side.

    EFFECTS has rank, percent, low, high, label, state, class, manner and what tooltips show.
    """
    none = {"labels": False, "ticks": False, "grid": False}
    x = quantity("rank", title="units, the fastest first", axis=none, scale={"nice": False, "padding": 8})
    y, (color, shape) = _percent("percent", "time over the fleet"), _looks(states)
    of_names = {"y": y, "text": {"field": "label"}, "color": {"value": INK}}
    layers = [
        layer("rule", {"opacity": 0.45}, {"y": quantity("low"), "y2": {"field": "high"}}),
        layer("point", _DOT | {"size": 22, "opacity": 1}, {"y": y, "shape": shape, "tooltip": _TOOLTIP}),
        layer("text", _WORDS_BEFORE | {"dx": -7, "color": INK}, of_names, transform=_LABELLED),
    ]
    panel = {"layer": layers, "encoding": {"x": x, "color": color}, "height": HEIGHT}
    of_class = [{"filter": {"field": "class", "equal": of}}]
    return faceted(EFFECTS, panel, "manner", manners, _LABEL, transform=of_class)


def strips(field: str, title: str, values: Sequence[str], states: Collection[str]) -> Spec:
    """Units by what they have in common, one strip for each value; the bar is the strip's median.

    EFFECTS as for `sorted_units`, with this field and `jitter`, from -1 to 1. The signals `of` and `manner`
    choose the class and the manner.
    """
    axis = {"labelOverlap": True, "labelAngle": 0 if sum(map(len, values)) < 120 else -90}
    x = category(field, title=title, sort=list(values), axis=axis)
    y, (color, shape) = _percent("percent", "time over the fleet"), _looks(states)
    tick = {"color": INK, "thickness": 1.5, "size": max(4, min(40, 600 // len(values)))}
    across = quantity("jitter", scale={"domain": [-1.6, 1.6]})
    encoding = {"y": y, "xOffset": across, "color": color, "shape": shape, "tooltip": _TOOLTIP}
    layers = [
        layer("tick", tick, {"y": {**y, "aggregate": "median"}, "xOffset": {"datum": 0}}),
        layer("point", _DOT | {"size": 28, "opacity": 0.8}, encoding),
    ]
    return _chosen({"encoding": {"x": x}, "layer": layers, "height": 230})


def clocks(states: Collection[str]) -> Spec:
    """The SM clock of each unit against its power; EFFECTS with clock_mhz and power_w."""
    x = quantity("power_w", title="power (W)", scale={"zero": False}, axis={"tickCount": 8})
    y = quantity("clock_mhz", title="SM clock (MHz)", scale={"zero": False})
    color, shape = _looks(states)
    encoding = {"x": x, "y": y, "color": color, "shape": shape, "tooltip": _TOOLTIP}
    names, beside = {"x": x, "y": y, "text": {"field": "label"}}, {"align": "left", "dx": 7, "fontSize": 11}
    layers = [
        layer("point", _DOT | {"size": 40, "opacity": 0.8}, encoding),
        layer("text", beside, names, transform=_LABELLED),
    ]
    known = [{"filter": "isValid(datum.clock_mhz) && isValid(datum.power_w)"}]
    return _chosen({"layer": layers, "height": 300}, known)


def slowest(classes: Sequence[str], several: bool) -> Spec:
    """What jobs of so many units lose by class; SLOWEST has units, percent, class and among."""
    colors = [style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.BLACK]
    stroke = {"symbolType": "stroke", "symbolStrokeWidth": 3}
    color = category("class", scale={"domain": list(classes), "range": colors}, legend=stroke)
    axis = {"labelExpr": "format(datum.value, 'd')", "values": [1, 8, 64, 512]}
    log = {"type": "log", "base": 2, "nice": False}
    x = quantity("units", title="units of the job", scale=log, axis=axis)
    encoding: Spec = {"x": x, "y": _percent("percent", "slowest over the median unit"), "color": color}
    if several:
        dash = {"domain": [ALL, UNNAMED], "range": [[1, 0], [5, 3]]}
        encoding["strokeDash"] = category("among", scale=dash, legend=None)
    encoding["tooltip"] = [{"field": f} for f in ("class", "among", "units", "text")]
    lines = layer("line", {"strokeWidth": 1.6, "point": {"size": 16, "filled": True}}, encoding)
    return wide(data={"name": SLOWEST}, height=260, **lines)


def nights(panels: Sequence[str]) -> Spec:
    """Effects night by night, a panel each; NIGHTS has date, percent, panel, and `since` on one row each."""
    x = {"field": "date", "type": "temporal", "title": None, "axis": {"format": "%d %b", "tickCount": 4}}
    y = _percent("percent", "over the fleet") | {"scale": {"zero": True}}
    shown, since = [{"field": f} for f in ("panel", "night", "text")], [{"filter": "datum.since"}]
    layers = [
        layer("line", {"color": style.BLUE, "strokeWidth": 1, "opacity": 0.6}, {"x": x, "y": y}),
        layer("point", _DOT | {"size": 12, "color": style.BLUE}, {"x": x, "y": y, "tooltip": shown}),
        layer("rule", {"color": style.VERMILLION, "strokeWidth": 1.5}, {"x": x}, transform=since),
        layer(
            "text", _WORDS_BEFORE | {"dx": -4, "y": 8}, {"x": x, "text": {"field": "since"}}, transform=since
        ),
    ]
    spec = faceted(NIGHTS, {"layer": layers, "height": 110}, "panel", panels, _LABEL)
    # The unit and the class, a line each.
    spec["facet"]["header"]["labelExpr"] = "split(datum.label, ': ')"
    return spec


def _percent(field: str, title: str) -> Spec:
    axis = {"labelExpr": _PERCENT, "tickCount": 6}
    return quantity(field, title=title, scale={"zero": False}, axis=axis)


def _looks(states: Collection[str]) -> list[Spec]:
    """The channels of colour and shape."""
    domain = [state for state in STATES if state in states]
    legend: Spec | None = {} if len(domain) > 1 else None
    ranges = ([STATES[state][place] for state in domain] for place in (0, 1))
    return [category("state", scale={"domain": domain, "range": of}, legend=legend) for of in ranges]


def _chosen(spec: Spec, filters: Sequence[Spec] = ()) -> Spec:
    """A chart of the class and the manner that the page's choice says."""
    chosen = {"filter": "datum.class === of && datum.manner === manner"}
    choice = [{"name": "of", "value": ""}, {"name": "manner", "value": ""}]
    return wide(data={"name": EFFECTS}, params=choice, transform=[chosen, *filters], **spec)
