"""Roofs of a roofline picture: the bound at each intensity, from each source of peaks and bandwidths.

Thin grey: the datasheet. Solid: measured in the same run, the slope being a copy's bandwidth. Dashed: a copy
whose data stays in a cache, for each cache that is clearly faster than the next level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bench.format import amount_text, memory_text
from bench.judge.frame import DeviceRun
from bench.model.ceilings import Ceilings
from plots.base import scale, style

CLEARLY = 1.4
"""Factor in bandwidth from which a cache counts as distinct from the next one and from memory."""
_LETTER_IN = 0.058
"""Width of a letter of a label along a slope, about."""
MOST_CACHES = 3
"""Most cache roofs in one picture, the fastest first."""

Kind = Literal["stated", "measured", "cached"]
_LOOK: dict[Kind, dict[str, Any]] = {
    "stated": {"color": style.GREY, "lw": 0.9},
    "measured": {"color": style.BLACK, "lw": 1.6},
    "cached": {"color": "#333333", "lw": 0.9, "ls": (0, (4, 2))},
}


@dataclass(frozen=True)
class Roof:
    """One roof: a slope, a flat part, or both."""

    kind: Kind
    peak: float | None
    """FLOP/s."""
    bandwidth: float | None
    """bytes/s."""
    label: str = ""
    """The amount of data that was copied, for a cache."""

    @property
    def ridge(self) -> float | None:
        """The intensity where the slope meets the flat part, FLOP/byte; None without one of them."""
        return self.peak / self.bandwidth if self.peak and self.bandwidth else None

    def flops(self, x: np.ndarray) -> np.ndarray:
        """The roof at these intensities, FLOP/s."""
        return np.minimum(self.peak or np.inf, x * (self.bandwidth or np.inf))


def of(run: DeviceRun, points: pd.DataFrame, dtype: str, how: str) -> list[Roof]:
    """The roofs for the arithmetic of these points; roofs without any number are left out."""
    ceilings, sheet = run.roof(how), run.datasheet
    roofs: list[Roof] = []
    for unit in sorted(points["arithmetic"].unique()):
        if sheet is not None:
            roofs.append(Roof("stated", sheet.peak_flop_per_s(unit, dtype), sheet.bandwidth_byte_per_s))
        roofs.append(Roof("measured", ceilings.peak(unit, dtype), _slope(ceilings)))
    # A slope without a peak (vector arithmetic, whose peak is not measured) adds nothing to one with a peak.
    whole = {(roof.kind, roof.bandwidth) for roof in roofs if roof.peak}
    roofs = [roof for roof in roofs if roof.peak or (roof.kind, roof.bandwidth) not in whole]
    roofs = list(dict.fromkeys(roof for roof in roofs if roof.peak or roof.bandwidth))
    highest = max((roof.peak for roof in roofs if roof.kind == "measured" and roof.peak), default=None)
    return roofs + _caches(ceilings, highest)


def _slope(ceilings: Ceilings) -> float | None:
    """Bandwidth of a copy; without one, as for imported timings, of the pass that is nearest to a copy."""
    second_per_byte = ceilings.second_per_byte(0.5)
    return None if second_per_byte is None else 1.0 / float(second_per_byte)


def _caches(ceilings: Ceilings, peak: float | None) -> list[Roof]:
    """A roof for each cache that the bandwidths by working set distinguish, up to the highest peak.

    Working sets between two caches lie partly in one; they have no roof of their own.
    """
    caches: list[Roof] = []
    least = (ceilings.copy_byte_per_s or np.inf) * CLEARLY
    held = 0
    for byte, ceiling in sorted(ceilings.cached.items(), key=lambda cache: -cache[1].per_s):
        highest = caches[-1].bandwidth or 0.0 if caches else np.inf
        # A smaller set that is yet slower is so small that a launch ends too soon.
        clear = least <= ceiling.per_s and ceiling.per_s * CLEARLY <= highest and byte > held
        if clear and len(caches) < MOST_CACHES:
            caches.append(Roof("cached", peak, ceiling.per_s, memory_text(byte)))
            held = byte
    return caches


def limits(axes: Axes, points: pd.DataFrame, roofs: list[Roof], factor: float) -> None:
    """Set limits with room for every point, every ridge and the flat part after it."""
    x = list(points["intensity"])
    y = [*(points["flop_per_s"] / 2), *(points["flop_per_s"] * 2)]  # what the bars of intervals reach at most
    for roof in roofs:
        if roof.ridge:
            x += [roof.ridge / 4, roof.ridge * 4]
        if roof.peak:
            y.append(roof.peak)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(min(x) / 1.6, max(x) * 2.5)
    axes.set_ylim(min(y) * factor / 1.8, max(y) * factor * 1.6)
    scale.measured(axes.xaxis, np.array(axes.get_xlim()), log=True)
    scale.measured(axes.yaxis, np.array(axes.get_ylim()), log=True)


def draw(axes: Axes, roofs: list[Roof], factor: float) -> None:
    """Draw every roof; limits must be set."""
    cached = [roof for roof in roofs if roof.kind == "cached"]
    for roof in roofs:
        _roof(axes, roof, factor, cached.index(roof) if roof in cached else 0)


def entries(run: DeviceRun, roofs: list[Roof]) -> list[Line2D]:
    """Entries of the legend."""
    kinds = {roof.kind for roof in roofs}
    whose = "of the imported rows" if run.frame["imported"].all() else "measured"
    words: dict[Kind, str] = {"measured": whose, "cached": "copy inside a cache", "stated": "datasheet"}
    return [Line2D([], [], label=f"roof: {words[kind]}", **_LOOK[kind]) for kind in words if kind in kinds]


def _roof(axes: Axes, roof: Roof, factor: float, place: int) -> None:
    """Draw one roof; `place` is the index of a cache's roof, whose label must not overlap the others."""
    ridge = roof.ridge
    x = np.sort(np.array([*axes.get_xlim(), *([ridge] if ridge else [])]))
    look, solid = _LOOK[roof.kind], roof.kind == "measured"
    label = "_cache" if roof.kind == "cached" else "_roof"
    axes.plot(x, roof.flops(x) * factor, zorder=2, label=label, **look)
    text: dict[str, Any] = {"size": 7, "color": look["color"], "textcoords": "offset points", "zorder": 5}
    if roof.bandwidth:
        _along_slope(axes, roof, text, place, factor)
    if not roof.peak or roof.kind == "cached":
        return
    label = amount_text(roof.peak, "FLOP/s") + (" at best" if solid else " stated")
    # Side by side, since the two roofs may be close.
    at = (axes.get_xlim()[1], roof.peak * factor)
    # The roof of the datasheet may run through the number of the measured one.
    behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.3}
    axes.annotate(label, at, (-2 if solid else -80, 3), ha="right", va="bottom", bbox=behind, **text)
    if ridge is None:
        return
    how: dict[str, Any] = {"mfc": "white", "mec": look["color"], "ms": 5 if solid else 4, "zorder": 5}
    axes.plot(ridge, roof.peak * factor, "d", label="_ridge", **how)
    if solid:
        bottom = axes.get_ylim()[0]
        axes.vlines(ridge, bottom, roof.peak * factor, color=style.GREY, lw=0.7, ls=":", zorder=1)
        label = f"ridge {ridge:.3g} FLOP/byte"
        axes.annotate(label, (ridge, bottom), (-3, 4), rotation=90, ha="right", va="bottom", **text)


def _along_slope(axes: Axes, roof: Roof, text: dict[str, Any], place: int, factor: float) -> None:
    """Write the bandwidth along the slope, near where it enters the picture, if the slope is long enough."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    bandwidth = roof.bandwidth or 0.0
    copies = {"measured": "at best, a copy", "cached": f"at best, a copy of {roof.label}"}
    source = copies.get(roof.kind, "stated")
    label = f"{bandwidth * 1e-9:.4g} GB/s {source}"
    start = max(left, bottom / factor / bandwidth)
    end = min(right, roof.ridge or right, top / factor / bandwidth)
    box = axes.get_position()
    inches = axes.figure.get_size_inches()  # type: ignore[union-attr]
    rise = box.height * inches[1] / np.log10(top / bottom)
    run = box.width * inches[0] / np.log10(right / left)
    length_in = np.hypot(rise, run) * np.log10(end / start)
    if length_in < _LETTER_IN * len(label):
        return
    along = {"measured": 0.03, "stated": 0.2, "cached": 0.03 + 0.14 * (place % 2)}[roof.kind]
    x = start * min((right / left) ** along, (end / start) ** (1 - _LETTER_IN * len(label) / length_in))
    # Above the line, as points are below it; one roof's after the other's, as they may be close.
    how: dict[str, Any] = {"rotation": float(np.degrees(np.arctan2(rise, run))), "rotation_mode": "anchor"}
    how |= {"ha": "left", "va": "bottom", **text, "zorder": 3}
    # And below the points, for those above the line.
    axes.annotate(label, (x, x * bandwidth * factor), (0, 3), **how)
