"""What pages with charts share: the look of Vega-Lite charts, their library, and how both are packed.

Content and library are packed (gzip, base64), which makes a page a third of its size; the browser unpacks
them (`charts.js`).
"""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from plots.base import style

Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
DARK = "#555555"
CONFIG: Spec = {
    "font": "system-ui, sans-serif",
    "background": "#ffffff",
    "axis": {
        "gridColor": style.FAINT,
        "gridOpacity": 0.7,
        "labelFontSize": 11,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    },
    "header": {"labelFontSize": 12, "labelFontWeight": "bold", "title": None},
    "legend": {"labelFontSize": 11, "orient": "bottom", "title": None, "labelLimit": 180},
    "view": {"stroke": None},
}


def wide(**spec: Any) -> Spec:
    """A chart as wide as the page gives it room; the page grows with the legend instead of squeezing it."""
    autosize = {"type": "fit-x", "contains": "padding"}
    return {"$schema": SCHEMA, "config": CONFIG, "width": "container", "autosize": autosize, **spec}


def faceted(data: str, panel: Spec, field: str, values: Sequence[str], label_width: int, **more: Any) -> Spec:
    """A panel for each value of a field of a dataset; the page makes as many columns as it has room for."""
    facet = {"field": field, "type": "nominal", "sort": list(values), "header": {"labelLimit": label_width}}
    whole = {"$schema": SCHEMA, "config": CONFIG, "data": {"name": data}}
    return {**whole, "facet": facet, "columns": 1, "spec": panel, **more}


def quantity(field: str, **more: Any) -> Spec:
    """A channel of numbers."""
    return {"field": field, "type": "quantitative", **more}


def category(field: str, **more: Any) -> Spec:
    """A channel of words."""
    return {"field": field, "type": "nominal", **more}


def layer(mark: str, look: Spec, encoding: Spec, **more: Any) -> Spec:
    """A layer of such marks; `more` are the data that they show, and parameters."""
    return {"mark": {"type": mark, **look}, "encoding": encoding, **more}


def tooltip(titles: Mapping[str, str]) -> list[Spec]:
    """What a tooltip shows: field -> its title."""
    return [{"field": field, "title": title} for field, title in titles.items()]


_BUNDLE = """
import sys, vl_convert
sys.stdout.buffer.write(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").encode())
"""


def inlined(content: Any) -> str:
    """The content as JSON, packed for a page. ValueError if it holds NaN or infinity, which JSON has not."""
    return _packed(json.dumps(content, separators=(",", ":"), allow_nan=False).encode())


@cache
def library() -> str:
    """Vega, Vega-Lite and Vega-Embed as vl-convert carries them, packed for a page."""
    begin_library()
    bundle, _ = _bundling().communicate()
    assert _bundling().returncode == 0, "vl-convert could not bundle its libraries"
    return _packed(bundle)


def begin_library() -> None:
    """Begin to bundle what `library` gives: it takes a second and more, in a process of its own."""
    _bundling()


@cache
def _bundling() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", _BUNDLE], stdout=subprocess.PIPE)


def _packed(text: bytes) -> str:
    return base64.b64encode(gzip.compress(text, mtime=0)).decode()
