"""Style of every figure: the meaning of colours, markers and dashes, and texts for values.

The colours are Okabe and Ito's, which readers of any colour vision can distinguish; as some are pale in
print, a colour always has its marker. Colour and marker show the implementation, the dash the data type.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.colors import to_hex, to_rgb
from matplotlib.lines import Line2D

from bench.judge.flags import FLAGS
from bench.judge.frame import DeviceRun
from bench.store.schema import RunKey

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
GREY = "#8A8A8A"
FAINT = "#E4E4E4"
NO_BREAK = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class LineStyle:
    """The look of one line of a figure."""

    color: str
    marker: str
    dash: str | tuple[float, tuple[float, ...]] = "-"


def _of_colors(markers: Mapping[str, str]) -> dict[str, LineStyle]:
    """Name -> look, of colour -> `marker name, marker name`."""
    pairs = ((color, each.split()) for color, text in markers.items() for each in text.split(", "))
    return {name: LineStyle(color, marker) for color, (marker, name) in pairs}


INDIGO, WINE, FOREST, OLIVE = "#332288", "#882255", "#117733", "#999933"
_TILES: Mapping[str, str] = {"256x128": "<", "128x128": "p", "64x64": "v"}
"""Marker of each forced tile."""

IMPLEMENTATIONS: Mapping[str, LineStyle] = _of_colors(
    {
        BLACK: "o aten, s unfused",
        VERMILLION: "s cublas, o flash, D flash-cpu",
        PURPLE: "d cublaslt, ^ cudnn",
        WINE: "h cusparselt, s flash-4, D quack",
        ORANGE: "s cublas-quantized, v inductor",
        SKY: "^ cudnn-folded, X triton-persistent",
        FOREST: "s cudnn-heuristic, d liger, h onednn-fused, o triton-pointer",
        INDIGO: "^ cudnn-relu",
        GREEN: "^ efficient, D onednn, X triton-tma",
        GREY: "X math",
        OLIVE: "D onednn-folded, * triton-split-k",
        BLUE: "P triton",
    }
) | {
    f"{family}-{tile}": LineStyle(color, marker)
    for family, color in (("cublaslt", WINE), ("triton", INDIGO))
    for tile, marker in _TILES.items()
}
OPERATORS: Mapping[str, LineStyle] = {
    "gemm": LineStyle(VERMILLION, "s"),
    "linear": LineStyle(PURPLE, "D"),
    "convolution": LineStyle(FOREST, "P"),
    "convolution_block": LineStyle(FOREST, "X"),
    "attention": LineStyle(WINE, "X"),
    "batchnorm": LineStyle(BLUE, "o"),
    "activations": LineStyle(GREEN, "^"),
    "pooling": LineStyle(ORANGE, "v"),
    "layernorm": LineStyle(SKY, "p"),
    "softmax": LineStyle(OLIVE, "h"),
    "fusion": LineStyle(BLACK, "d"),
    "fma": LineStyle(GREY, "*"),
    "quantize": LineStyle(INDIGO, "8"),
}
"""Looks of operators, in figures with several of them."""
DASHES: Mapping[str, str | tuple[float, tuple[float, ...]]] = {
    "float32": "-",
    "float16": (0, (5, 1)),
    "bfloat16": (0, (1, 1)),
    "tf32": (0, (5, 1, 1, 1)),
    "float64": (0, (8, 2)),
    "float8_e4m3": (0, (3, 1, 1, 1, 1, 1)),
    "int8": (0, (2, 2)),
}
COLORS = (SKY, VERMILLION, GREEN, PURPLE, ORANGE, BLUE, BLACK)
"""Colours for what has none of its own, in the order of its values."""
_OTHERS = ("#7F5A2E", "#B09A00", "#6B4E9B", "#C23B80")  # of implementations that are not named above
_MARKERS = ("X", "*", "<", ">", "h", "p", "d", "8")
_LINE_MARKERS = ("o", "s", "^", "D", "v", "P", *_MARKERS)
_OTHER_LOOKS = [LineStyle(color, marker) for marker in _MARKERS for color in _OTHERS]
_PARAMETERS: Mapping[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.minor.width": 0.6,
    "ytick.minor.width": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "svg.fonttype": "none",
    # The same rows give the same bytes.
    "svg.hashsalt": "roofbench",
}


def look() -> AbstractContextManager[None]:
    """Context with the fonts, grid and lines of every figure, for drawing and saving."""
    return rc_context(dict(_PARAMETERS))


def of_implementation(name: str) -> LineStyle:
    """The look of an implementation, the same in every figure of every run, even if its name is unknown."""
    return IMPLEMENTATIONS.get(name) or _other(name)


def grouped(names: Sequence[str], most: int) -> Mapping[str, tuple[str, LineStyle]]:
    """Implementation -> (label, look) in a legend; of more than `most` the last are `others` together.

    `names` begin with those that matter most.
    """
    shown = names if len(names) <= most else names[: most - 1]
    others = LineStyle(GREY, "X")
    return {name: (name, of_implementation(name)) if name in shown else ("others", others) for name in names}


def of_operator(name: str) -> LineStyle:
    """The look of an operator, in figures where colour and marker do not show the implementation."""
    return OPERATORS.get(name) or _other(name)


def _other(name: str) -> LineStyle:
    """A look that is the same for a name in every process; `hash` would differ between processes."""
    return _OTHER_LOOKS[zlib.crc32(name.encode()) % len(_OTHER_LOOKS)]


def of_lines(columns: Sequence[str], keys: Sequence[tuple[Any, ...]]) -> dict[tuple[Any, ...], LineStyle]:
    """A look for each line of a figure; `keys` are the lines' values in `columns`.

    The implementation gives a line its colour and, if nothing else distinguishes lines, its marker. Other
    columns give markers and paler shades of the colour in the order of their values, or colours if there are
    not several implementations of different colours. The data type gives the dash.
    """
    names = list(columns)
    place_of = names.index("implementation") if "implementation" in names else None
    implementations = {str(key[place_of]) for key in keys} if place_of is not None else set()
    # A dozen forced tiles of one kernel have its colour.
    told_apart = len({of_implementation(name).color for name in implementations}) == len(implementations)
    several = len(implementations) > 1 and told_apart
    rest = [i for i, name in enumerate(names) if name != "implementation"]
    others = list(dict.fromkeys(tuple(key[i] for i in rest) for key in keys))
    looks = {}
    for key in keys:
        facts_of = dict(zip(names, key, strict=True))
        place = others.index(tuple(key[i] for i in rest)) if several else keys.index(key)
        color, marker = COLORS[place % len(COLORS)], _LINE_MARKERS[place % len(_LINE_MARKERS)]
        if "implementation" in facts_of and (several or len(keys) == 1):
            base = of_implementation(str(facts_of["implementation"]))
            color = _paler(base.color, 0.5 * place / (len(others) - 1)) if place else base.color
            marker = marker if len(others) > 1 else base.marker
        dash = DASHES.get(str(facts_of.get("dtype")), "-")
        looks[key] = LineStyle(color, marker, dash)
    return looks


def marker(label: str, color: str, shape: str, size: float = 5.0, **how: Any) -> Line2D:
    """Entry of a legend for points of this colour and shape."""
    return Line2D([], [], color=color, marker=shape, ls="", ms=size, label=label, **how)


def flagged(size: float) -> Line2D:
    """Entry of a legend for hollow points, whatever their colour and marker."""
    return marker("suspect (flagged)", "#444444", "o", size, mfc="white")


def _paler(color: str, white: float) -> str:
    """The colour mixed with this share of white."""
    red, green, blue = (part + (1 - part) * white for part in to_rgb(color))
    return to_hex((red, green, blue))


# --- text -------------------------------------------------------------------------------------------


def labelled(column: str, value: Any) -> str:
    """Text of a value for a legend or a panel: words alone, numbers with the name of their column."""
    if value is None or value != value:
        return f"no {column}"
    if isinstance(value, str):
        return value.replace("_", " ") if column == "direction" else value
    return f"{column}={number(value)}" if not isinstance(value, bool) else f"{column}={value}"


def named(columns: Iterable[str], values: Iterable[Any]) -> str:
    """Text of the values of several columns, for a legend or a panel: `aten, NHWC, n=64`."""
    return ", ".join(labelled(column, value) for column, value in zip(columns, values, strict=True))


def number(value: float) -> str:
    """Short text of a number, exact where possible: 4096, 0.5, 2e+10."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e9 else f"{value:.3g}"


def facts(run: DeviceRun, rows: pd.DataFrame) -> str:
    """The second line of every title: device, versions, date, commit, cache, clock and number of rows."""
    driver = "kernel" if (rows["device_kind"] == "cpu").all() else "driver"
    words = {"driver": driver, "torch": "torch", "triton": "Triton", "commit": "commit"}
    clock = f", clock {_each(rows['clock'])}" if _each(rows["clock"]) else ""
    parts = [_each(rows["device_name"]), *_versions(rows, words), f"{_each(rows['cache'])} cache{clock}"]
    if "one" in set(rows["threads_asked"]):
        parts.append(f"threads: {_each(rows['threads_asked'])}")
    if run.calibrating:
        parts.append(f"calibrated by run {run.calibrating.run_id}")
    timed = int(rows["median_s"].notna().sum())
    parts.append(f"n = {timed}" + (" measured" if timed == len(rows) else f" of {len(rows)} measured"))
    # Lines break between facts, not inside them, except in a source, which may be longer than a line.
    return " · ".join([*imported(rows), *(part.replace(" ", NO_BREAK) for part in parts if part)])


def facts_together(rows: pd.DataFrame) -> str:
    """The second line of a title over several runs: sources, versions, dates, number of rows."""
    versions = _versions(rows, {name: name for name in ("driver", "torch", "commit")})
    runs = len(rows[[*RunKey._fields]].drop_duplicates())
    parts = [*versions, f"{runs} run" + "s" * (runs > 1), f"n = {len(rows)}"]
    whole = [part.replace(" ", NO_BREAK) for part in parts if part]
    return " · ".join([*imported(rows), *whole])


def _versions(rows: pd.DataFrame, words: Mapping[str, str]) -> list[str]:
    """`torch 2.13.0` for each of these columns that is known, and the date."""
    versions = [f"{word} {_each(rows[column])}" for column, word in words.items() if _each(rows[column])]
    return [*versions, _each(rows["utc"].str[:10])]


def imported(rows: pd.DataFrame) -> list[str]:
    """`imported: aiconfigurator-core ...` if any of the rows was measured by somebody else; else empty.

    It stands in the title of every figure with such rows, as a marker alone could be overlooked. Of a source
    only the part before the first semicolon is shown: package and version, by convention.
    """
    sources = rows["source"].dropna()
    if not len(sources):
        return []
    names = _each(sources.str.split(";").str[0])
    ours = len(rows) - len(sources)
    return [f"imported: {names}" + (f" ({ours} rows are our own)" if ours else "")]


def flag_counts(rows: pd.DataFrame, look: str = "hollow") -> str:
    """The sentence on flags of the timed rows and the look of suspect ones: `Flagged: 3 noisy (hollow).`"""
    timed = rows[rows["median_s"].notna()]
    raised = Counter(name for names in timed["flags"] for name in names.split())
    flags = [flag for flag in FLAGS if raised[flag.name]]
    suspect, others = (
        ", ".join(f"{raised[flag.name]} {flag.name}" for flag in flags if flag.suspect == makes_suspect)
        for makes_suspect in (True, False)
    )
    sentence = "; ".join(filter(None, (suspect and f"{suspect} ({look})", others)))
    return f"Flagged: {sentence}." if sentence else "No point is flagged."


def _each(column: pd.Series) -> str:
    return ", ".join(sorted({str(v) for v in column.dropna().unique() if str(v)}))
