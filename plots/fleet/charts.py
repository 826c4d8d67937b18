"""Vega-Lite specifications of a fleet's charts, as JSON objects.

Their data is not in them: each names datasets of the page, which fills them in. One field is one column.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from plots.base import style
from plots.base.vega import Spec, faceted, tooltip, wide

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
    x: Spec = {
        "field": "rank",
        "type": "quantitative",
        "title": "units, the fastest first",
        "axis": {"labels": False, "ticks": False, "grid": False},
    }
    x["scale"] = {"nice": False, "padding": 8}
    y, (color, shape) = _percent("percent", "time over the fleet"), _looks(states)
    layers: list[Spec] = [
        {
            "mark": {"type": "rule", "opacity": 0.45},
            "encoding": {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}},
        },
        {
            "mark": {"type": "point", "size": 22, "filled": True, "opacity": 1},
            "encoding": {"y": y, "shape": shape, "tooltip": _TOOLTIP},
        },
        {
            "transform": [{"filter": "datum.label"}],
            "mark": {"type": "text", "align": "right", "dx": -7, "fontSize": 11, "color": "#1b1b1b"},
            "encoding": {"y": y, "text": {"field": "label"}, "color": {"value": "#1b1b1b"}},
        },
    ]
    panel = {"layer": layers, "encoding": {"x": x, "color": color}, "height": HEIGHT}
    of_class = [{"filter": {"field": "class", "equal": of}}]
    return faceted(EFFECTS, panel, "manner", manners, _LABEL, transform=of_class)


def strips(field: str, title: str, values: Sequence[str], states: Collection[str]) -> Spec:
    """Units by what they have in common, one strip for each value; the bar is the strip's median.

    EFFECTS as for `sorted_units`, with this field and `jitter`, from -1 to 1. The signals `of` and `manner`
    choose the class and the manner.
    """
    x: Spec = {"field": field, "type": "nominal", "title": title, "sort": list(values)}
    x["axis"] = {"labelOverlap": True, "labelAngle": 0 if sum(map(len, values)) < 120 else -90}
    y, (color, shape) = _percent("percent", "time over the fleet"), _looks(states)
    width = max(4, min(40, 600 // len(values)))
    across = {"field": "jitter", "type": "quantitative", "scale": {"domain": [-1.6, 1.6]}}
    layers: list[Spec] = [
        {
            "mark": {"type": "tick", "color": "#1b1b1b", "thickness": 1.5, "size": width},
            "encoding": {"y": {**y, "aggregate": "median"}, "xOffset": {"datum": 0}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 28, "opacity": 0.8},
            "encoding": {"y": y, "xOffset": across, "color": color, "shape": shape, "tooltip": _TOOLTIP},
        },
    ]
    return _chosen({"encoding": {"x": x}, "layer": layers, "height": 230})


def clocks(states: Collection[str]) -> Spec:
    """The SM clock of each unit against its power; EFFECTS with clock_mhz and power_w."""
    x = {
        "field": "power_w",
        "type": "quantitative",
        "title": "power (W)",
        "scale": {"zero": False},
        "axis": {"tickCount": 8},
    }
    y = {"field": "clock_mhz", "type": "quantitative", "title": "SM clock (MHz)", "scale": {"zero": False}}
    mark = {"type": "point", "filled": True, "size": 40, "opacity": 0.8}
    color, shape = _looks(states)
    encoding = {"x": x, "y": y, "color": color, "shape": shape, "tooltip": _TOOLTIP}
    label = {
        "transform": [{"filter": "datum.label"}],
        "mark": {"type": "text", "align": "left", "dx": 7, "fontSize": 11},
        "encoding": {"x": x, "y": y, "text": {"field": "label"}},
    }
    known = [{"filter": "isValid(datum.clock_mhz) && isValid(datum.power_w)"}]
    return _chosen({"layer": [{"mark": mark, "encoding": encoding}, label], "height": 300}, known)


def slowest(classes: Sequence[str], several: bool) -> Spec:
    """What jobs of so many units lose by class; SLOWEST has units, percent, class and among."""
    color = {
        "field": "class",
        "type": "nominal",
        "scale": {
            "domain": list(classes),
            "range": [style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.BLACK],
        },
        "legend": {"symbolType": "stroke", "symbolStrokeWidth": 3},
    }
    x = {
        "field": "units",
        "type": "quantitative",
        "title": "units of the job",
        "scale": {"type": "log", "base": 2, "nice": False},
        "axis": {"labelExpr": "format(datum.value, 'd')", "values": [1, 8, 64, 512]},
    }
    encoding: Spec = {"x": x, "y": _percent("percent", "slowest over the median unit"), "color": color}
    if several:
        dash = {"domain": [ALL, UNNAMED], "range": [[1, 0], [5, 3]]}
        encoding["strokeDash"] = {"field": "among", "type": "nominal", "scale": dash, "legend": None}
    encoding["tooltip"] = [{"field": f} for f in ("class", "among", "units", "text")]
    mark = {"type": "line", "strokeWidth": 1.6, "point": {"size": 16, "filled": True}}
    return wide(data={"name": SLOWEST}, height=260, mark=mark, encoding=encoding)


def nights(panels: Sequence[str]) -> Spec:
    """Effects night by night, a panel each; NIGHTS has date, percent, panel, and `since` on one row each."""
    x = {"field": "date", "type": "temporal", "title": None, "axis": {"format": "%d %b", "tickCount": 4}}
    y = _percent("percent", "over the fleet") | {"scale": {"zero": True}}
    layers: list[Spec] = [
        {
            "mark": {"type": "line", "color": style.BLUE, "strokeWidth": 1, "opacity": 0.6},
            "encoding": {"x": x, "y": y},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 12, "color": style.BLUE},
            "encoding": {"x": x, "y": y, "tooltip": [{"field": f} for f in ("panel", "night", "text")]},
        },
        {
            "transform": [{"filter": "datum.since"}],
            "mark": {"type": "rule", "color": style.VERMILLION, "strokeWidth": 1.5},
            "encoding": {"x": x},
        },
        {
            "transform": [{"filter": "datum.since"}],
            "mark": {"type": "text", "align": "right", "dx": -4, "y": 8, "fontSize": 11},
            "encoding": {"x": x, "text": {"field": "since"}},
        },
    ]
    spec = faceted(NIGHTS, {"layer": layers, "height": 110}, "panel", panels, _LABEL)
    # The unit and the class, a line each.
    spec["facet"]["header"]["labelExpr"] = "split(datum.label, ': ')"
    return spec


def _percent(field: str, title: str) -> Spec:
    axis = {"labelExpr": _PERCENT, "tickCount": 6}
    return {"field": field, "type": "quantitative", "title": title, "scale": {"zero": False}, "axis": axis}


def _looks(states: Collection[str]) -> list[Spec]:
    """The channels of colour and shape."""
    domain = [state for state in STATES if state in states]
    channel: Spec = {"field": "state", "type": "nominal", "legend": {} if len(domain) > 1 else None}
    ranges = ([STATES[state][place] for state in domain] for place in (0, 1))
    return [{**channel, "scale": {"domain": domain, "range": of}} for of in ranges]


def _chosen(spec: Spec, filters: Sequence[Spec] = ()) -> Spec:
    """A chart of the class and the manner that the page's choice says."""
    chosen = {"filter": "datum.class === of && datum.manner === manner"}
    choice = [{"name": "of", "value": ""}, {"name": "manner", "value": ""}]
    return wide(data={"name": EFFECTS}, params=choice, transform=[chosen, *filters], **spec)
