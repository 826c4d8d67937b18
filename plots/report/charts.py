"""Vega-Lite specifications of a report's charts, as JSON objects.

Their data is not in them: the page fills in the dataset `rows`, or whoever draws them without a browser, by
vl-convert. One field is one column of that dataset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype

from plots.base import style
from plots.base.vega import DARK, Spec, category, faceted, layer, quantity, tooltip, wide

ROWS = "rows"
"""Name of the dataset that the page fills in."""
CELL = 250
"""Width of a panel of an experiment, in pixels, which the page makes fit; its height is HEIGHT."""
HEIGHT, _HIGH = 170, 340
SHAPES = {
    **{"o": "circle", "s": "square", **dict.fromkeys("Dd", "diamond"), **dict.fromkeys("PX", "cross")},
    **{"^": "triangle-up", "v": "triangle-down", "<": "triangle-left", ">": "triangle-right"},
}
"""Marker of the figures -> shape of Vega."""

_PLAIN = "format(datum.value, '~g')"
_PREFIXED = "format(datum.value, '~s')"
_SIZE = "datum.value >= 1e6 ? format(datum.value, '.3~s') : format(datum.value, '~d')"
_SECONDS = "format(datum.value, '~s') + 's'"
"""10 us instead of 0.00001: d3 writes the prefix."""
_TOOLTIP = tooltip(
    {
        **{"name": "case", "time": "time", "rate_text": "rate", "prediction": "predicted"},
        **{"bound_by": "bound by", "flag_text": "flags"},
    }
)
_LOG: Spec = {"type": "log"}
_BINARY: Spec = {"type": "log", "base": 2}


def roofline(roofs: Sequence[Mapping[str, Any]], dense: bool) -> Spec:
    """Rates over intensity below the roofs; `rows` has intensity, flop_per_s, colour and suspect.

    A roof has `roof` (its number), `kind` (measured or datasheet), intensity and flop_per_s, a row for each
    corner; the last one's `label` is written beside it. `dense`: points would hide each other at full size.
    """
    x = _axis("intensity", "arithmetic intensity (FLOP per byte)", _LOG, _PLAIN, "1")
    y = _axis("flop_per_s", "rate (FLOP/s)", _LOG, _PREFIXED, "1")
    dash = {"domain": ["measured", "datasheet"], "range": [[1, 0], [4, 3]]}
    of_roof = {"x": x, "y": y, "detail": {"field": "roof"}}
    of_roof["strokeDash"] = {"field": "kind", "legend": None, "scale": dash}
    every, named = [dict(roof) for roof in roofs], [dict(roof) for roof in roofs if roof["label"]]
    lines = layer("line", {"color": DARK, "strokeWidth": 1.2}, of_roof, data={"values": every})
    # Above the points, on a white rim, or thousands of these would hide the words.
    of_words, place = {"x": x, "y": y, "text": {"field": "label"}}, {"align": "right", "dy": -7}
    words = [
        layer("text", place | rim, of_words, data={"values": named})
        for rim in ({"stroke": "#ffffff", "strokeWidth": 3, "color": "#ffffff"}, {"color": DARK})
    ]
    return wide(height=_HIGH, layer=[lines, _points(x, y, dense), *words])


def ratios(dense: bool) -> Spec:
    """Measured over predicted time against the predicted time; `rows` has predicted_s and ratio."""
    x = _axis("predicted_s", "predicted time", _LOG, _SECONDS, "1")
    y = _axis("ratio", "measured / predicted time", _BINARY, _PLAIN)
    line = layer("rule", {"color": DARK}, {"y": y}, data={"values": [{"ratio": 1}]})
    return wide(height=_HIGH, layer=[line, _points(x, y, dense)])


def swept(title: str, values: pd.Series, log: bool) -> Spec:
    """The x axis of curves: these sizes or words."""
    if not is_numeric_dtype(values):
        return category("x", title=title, sort=None)
    if not log:
        return _axis("x", title, {"zero": False, "nice": False}, _SIZE)
    binary = all(float(v).is_integer() and int(v).bit_count() == 1 for v in values)
    return _axis("x", title, (_BINARY if binary else _LOG) | {"nice": False}, _SIZE, "" if binary else "1")


def measured(title: str, values: pd.Series, log: bool, seconds: bool) -> Spec:
    """The y axis of curves: these times, or rates. Where they span little, 2 and 5 are labelled too."""
    digits = "125" if values.max() / values.min() < 10**1.5 else "1"
    label = _SECONDS if seconds else _PREFIXED
    return _axis("y", title, _LOG if log else {"zero": True}, label, digits if log else "")


def curves(
    x: Spec, y: Spec, looks: Mapping[str, style.LineStyle], panels: Sequence[str], dense: bool
) -> Spec:
    """Lines over a swept parameter in a panel each, with intervals, and predictions dashed.

    `rows` has x, y, low, high, predicted, line, panel and suspect; low and high are null where no interval is
    known. `x` and `y` are the axes (`swept`, `measured`). `dense`: markers would hide each other.
    """
    legend: Spec | None = {} if len(looks) > 1 else None
    colors = {"domain": list(looks), "range": [look.color for look in looks.values()]}
    shapes = {**colors, "range": [SHAPES.get(look.marker, "circle") for look in looks.values()]}
    color, shape = (category("line", scale=scale, legend=legend) for scale in (colors, shapes))
    fill = {"condition": {"test": "datum.suspect", "value": "#ffffff"}, **color, "legend": None}
    of_points = {"y": y, "shape": shape, "fill": fill, "tooltip": _TOOLTIP}
    ends, known = {"y": quantity("low"), "y2": {"field": "high"}}, [{"filter": "isValid(datum.low)"}]
    dashed = {"strokeWidth": 1, "strokeDash": [5, 3], "opacity": 0.85}
    layers = [
        layer("line", {"strokeWidth": 1.3}, {"y": y}),
        layer("rule", {}, ends, transform=known),
        layer("point", {"size": 3 if dense else 34}, of_points),
        layer("line", dashed, {"y": quantity("predicted")}),
    ]
    panel = {"layer": layers, "encoding": {"x": x, "color": color}, "width": CELL, "height": HEIGHT}
    alike = "shared" if y["scale"] == _LOG else "independent"
    return faceted(ROWS, panel, "panel", panels, CELL, resolve={"scale": {"y": alike}})


def heatmap(x: str, y: str, panels: Sequence[str]) -> Spec:
    """Measured over predicted time as colours over two parameters; `rows` has x, y, ratio and panel.

    `x` and `y` are the words of the axes. The colours end at a half and at twice what was predicted.
    """
    legend = {"title": "measured / predicted time", "labelExpr": "format(pow(2, datum.value), '~g')"}
    color = quantity(
        "log_ratio",
        scale={"scheme": "redblue", "reverse": True, "domain": [-1, 1], "clamp": True},
        legend=legend | {"values": [-1, 0, 1]},
    )
    encoding: Spec = {"x": _axis("x", x, _BINARY, _SIZE), "y": _axis("y", y, _BINARY, _SIZE)}
    encoding |= {"color": color, "tooltip": _TOOLTIP}
    log = [{"calculate": "log(datum.ratio) / log(2)", "as": "log_ratio"}]
    panel = layer("square", {"size": 90, "opacity": 1}, encoding, transform=log, width=CELL, height=CELL)
    return faceted(ROWS, panel, "panel", panels, CELL)


def _points(x: Spec, y: Spec, dense: bool) -> Spec:
    """The points of a chart with a brush, in the colour that the page's choice gives them.

    Suspect ones are hollow, and larger diamonds: at the size of a point nobody sees whether it is filled.
    """
    suspect: Spec = {"test": "datum.suspect"}
    size, width = (6, 0.5) if dense else (26, 1.2)
    encoding = {
        "x": x,
        "y": y,
        "color": category("colour", legend={"symbolOpacity": 1, "symbolSize": 60}),
        "fill": category("colour", legend=None),
        "fillOpacity": {"condition": suspect | {"value": 0}, "value": 1},
        "shape": {"condition": suspect | {"value": "diamond"}, "value": "circle"},
        "size": {"condition": suspect | {"value": 5 * size}, "value": size},
        "strokeWidth": {"condition": suspect | {"value": 1.2}, "value": width},
        "opacity": {"condition": {"param": "brush", "value": 0.5 if dense else 0.9}, "value": 0.2},
        "tooltip": _TOOLTIP,
    }
    brush = [{"name": "brush", "select": "interval"}]
    return layer("point", {}, encoding, data={"name": ROWS}, params=brush)


def _axis(field: str, title: str, scale: Spec, label: str, digits: str = "") -> Spec:
    """A quantitative channel with labels by this expression, if given only where a number begins so."""
    axis: Spec = {"labelExpr": label, "labelOverlap": True}
    if digits:
        axis["labelExpr"] = (
            f"indexof('{digits}', slice(format(datum.value, '.0e'), 0, 1)) >= 0 ? {label} : ''"
        )
    else:
        axis["tickCount"] = 5
    return quantity(field, title=title, scale=scale, axis=axis)
