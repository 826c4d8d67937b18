"""Vega-Lite specifications of a fleet's charts, as JSON objects.

Their data is not in them: each names datasets of the page, which fills them in. One field is one column.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from plots.base import style
from plots.base.vega import CONFIG, SCHEMA, Spec

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
HEIGHT = 190
EFFECTS, SLOWEST, NIGHTS = "effects", "slowest", "nights"
"""Names of datasets: a row for each unit, class and manner; for each size of a job; for each night."""
_PERCENT = "(datum.value > 0 ? '+' : '') + format(datum.value, '~g') + ' %'"
_TOOLTIP = [
    {"field": field, "title": title}
    for field, title in (
        ("unit", "unit"),
        ("text", "time over the fleet"),
        ("state", "verdict"),
        ("tags", "tags"),
        ("serial", "serial"),
        ("clock", "SM clock"),
        ("power", "power"),
        ("heat", "temperature"),
    )
]


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
    y = _percent("percent", "time over the fleet")
    layers: list[Spec] = [
        {
            "mark": {"type": "rule", "opacity": 0.45},
            "encoding": {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}},
        },
        {
            "mark": {"type": "point", "size": 22, "filled": True, "opacity": 1},
            "encoding": {"y": y, "shape": _shape(states), "tooltip": _TOOLTIP},
        },
        {
            "transform": [{"filter": "datum.label"}],
            "mark": {"type": "text", "align": "right", "dx": -7, "fontSize": 11, "color": "#1b1b1b"},
            "encoding": {"y": y, "text": {"field": "label"}, "color": {"value": "#1b1b1b"}},
        },
    ]
    panel = {"layer": layers, "encoding": {"x": x, "color": _color(states)}, "height": HEIGHT}
    return _faceted(EFFECTS, panel, "manner", manners, [{"filter": {"field": "class", "equal": of}}])


def strips(field: str, title: str, values: Sequence[str], states: Collection[str]) -> Spec:
    """Units by what they have in common, one strip for each value; the bar is the strip's median.

    EFFECTS as for `sorted_units`, with this field and `jitter`, from -1 to 1. The signals `of` and `manner`
    choose the class and the manner.
    """
    x: Spec = {"field": field, "type": "nominal", "title": title, "sort": list(values)}
    x["axis"] = {"labelOverlap": True, "labelAngle": 0 if sum(map(len, values)) < 120 else -90}
    y = _percent("percent", "time over the fleet")
    width = max(4, min(40, 600 // len(values)))
    across = {"field": "jitter", "type": "quantitative", "scale": {"domain": [-1.6, 1.6]}}
    layers: list[Spec] = [
        {
            "mark": {"type": "tick", "color": "#1b1b1b", "thickness": 1.5, "size": width},
            "encoding": {"y": {**y, "aggregate": "median"}, "xOffset": {"datum": 0}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 28, "opacity": 0.8},
            "encoding": {
                "y": y,
                "xOffset": across,
                "color": _color(states),
                "shape": _shape(states),
                "tooltip": _TOOLTIP,
            },
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
    encoding = {"x": x, "y": y, "color": _color(states), "shape": _shape(states), "tooltip": _TOOLTIP}
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
    return {
        "$schema": SCHEMA,
        "config": CONFIG,
        "data": {"name": SLOWEST},
        "width": "container",
        "height": 260,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "mark": mark,
        "encoding": encoding,
    }


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
            "encoding": {
                "x": x,
                "y": y,
                "tooltip": [{"field": f} for f in ("panel", "night", "text")],
            },
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
    spec = _faceted(NIGHTS, {"layer": layers, "height": 110}, "panel", panels, [])
    # The unit and the class, a line each.
    spec["facet"]["header"]["labelExpr"] = "split(datum.label, ': ')"
    return spec


def _percent(field: str, title: str) -> Spec:
    axis = {"labelExpr": _PERCENT, "tickCount": 6}
    return {"field": field, "type": "quantitative", "title": title, "scale": {"zero": False}, "axis": axis}


def _color(states: Collection[str]) -> Spec:
    domain = [state for state in STATES if state in states]
    scale = {"domain": domain, "range": [STATES[state][0] for state in domain]}
    return {"field": "state", "type": "nominal", "scale": scale, "legend": {} if len(domain) > 1 else None}


def _shape(states: Collection[str]) -> Spec:
    domain = [state for state in STATES if state in states]
    scale = {"domain": domain, "range": [STATES[state][1] for state in domain]}
    return {"field": "state", "type": "nominal", "scale": scale, "legend": {} if len(domain) > 1 else None}


def _chosen(spec: Spec, filters: Sequence[Spec] = ()) -> Spec:
    """A chart of the class and the manner that the page's choice says."""
    chosen = {"filter": "datum.class === of && datum.manner === manner"}
    return {
        "$schema": SCHEMA,
        "config": CONFIG,
        "data": {"name": EFFECTS},
        "params": [{"name": "of", "value": ""}, {"name": "manner", "value": ""}],
        "transform": [chosen, *filters],
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        **spec,
    }


def _faceted(data: str, panel: Spec, field: str, values: Sequence[str], transform: Sequence[Spec]) -> Spec:
    facet = {"field": field, "type": "nominal", "sort": list(values), "header": {"labelLimit": 320}}
    return {
        "$schema": SCHEMA,
        "config": CONFIG,
        "data": {"name": data},
        "transform": list(transform),
        "facet": facet,
        "columns": 1,
        "spec": panel,
    }
