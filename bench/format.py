"""How numbers are written for people: one function for each kind of number, `1.23 ms` or `+8.1 %`.

What is not known, None or NaN, or has no end, is written as nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isfinite

PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
NOT_MEASURABLE = "not measurable here"
"""In place of an interval that says nothing."""
MOST_APART = 10
"""Times the lower end that the upper end of a ratio's interval may be (assumed)."""
_NUMBER = re.compile(r"(?<![\w=.])(\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?!\w|\.\d)")


def seconds_text(seconds: float | None) -> str:
    """A time with three significant digits and the unit that suits: `1.23 ms`; `-1.23 ms` for a gain."""
    if seconds is None or not isfinite(seconds):
        return ""
    size = abs(seconds)
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if size >= scale or unit == "ns":
            digits = ".3g" if size / scale < 999.5 else ".0f"
            return f"{seconds / scale:{digits}} {unit if size else 's'}"
    raise AssertionError("the last unit serves for whatever is left")


def duration_text(seconds: float) -> str:
    """A waiting time. Minutes and seconds, from an hour on hours and minutes: `1 min 05 s`, `7 h 30 min`."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def amount_text(value: float | None, unit: str) -> str:
    """Four significant digits with a decimal prefix: `1.234 TFLOP/s`, `56.7 GB/s`; `1.23 ms` of seconds."""
    if unit == "s":
        return seconds_text(value)
    if value is None or not isfinite(value):
        return ""
    scale, prefix = next((s, p) for s, p in PREFIXES if value >= s or s == 1.0)
    return f"{value / scale:.4g} {prefix}{unit.replace('byte', 'B')}"


def memory_text(byte: float) -> str:
    """The size of a memory or of what has to fit into one, with a binary prefix: `512 KiB`."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if byte >= 2**power:
            return f"{byte / 2**power:.4g} {unit}"
    return f"{byte:g} byte"


def share_text(share: float | None, digits: int = 0) -> str:
    """A part of a whole: `87 %`."""
    return "" if share is None or not isfinite(share) else f"{100 * share:.{digits}f} %"


def change_text(ratio: float, factor: bool = False) -> str:
    """What became of 1: `+8.1 %`, `-0.4 %`; beyond a factor of two, or if asked for, the factor, `x 12`."""
    # Adding 0.0 turns -0.0 into 0.0.
    is_share = 0.5 < ratio < 2 and not factor
    return f"{round(100 * (ratio - 1), 1) + 0.0:+.1f} %" if is_share else f"x {ratio:.3g}"


def change_cells(ratio: float, low: float, high: float) -> tuple[str, str]:
    """What became of 1, and its interval: `+8.1 %` and `+7.0 to +9.2 %`, all three in one notation.

    Nothing and `not measurable here` where the ends are more than MOST_APART apart.
    """
    if not low * MOST_APART >= high:
        return "", NOT_MEASURABLE
    factor = low <= 0.5 or high >= 2
    return change_text(ratio, factor), span_text(change_text(low, factor), change_text(high, factor))


def half_text(middle: float | None, low: float | None, high: float | None) -> str:
    """Half of an interval's width as a share of the median: `±0.4 %`; `unknown` without the interval.

    `not measurable here` where the median lies below half of the interval's width.
    """
    if not middle or not isfinite(middle):
        return ""
    if low is None or high is None or not isfinite(high - low):
        return "unknown"
    half = 50 * (high - low) / middle
    return f"±{half:.1f} %" if half <= 100 else NOT_MEASURABLE


def ends_text(low: float, high: float, unit: str) -> str:
    """The ends of the interval of a time (`s`) or a rate: `1.2 to 1.3 GB/s`, or `no interval`.

    `1.2 GB/s, unknown above` of a rate whose least time is nothing after what is subtracted from it.
    """
    if not low < high:  # a ceiling without an interval has its value at both ends
        return "no interval"
    lower, upper = amount_text(low, unit), amount_text(high, unit)
    return span_text(lower, upper) if upper else f"{lower}, unknown above"


def span_text(low: str, high: str) -> str:
    """`1.2 to 1.3 GB/s` of `1.2 GB/s` and `1.3 GB/s`: a unit that both have stands once."""
    value, _, unit = low.partition(" ")
    is_shared = high.endswith(f" {unit}") and not unit[:1].isdigit()  # of `x 2` it is no unit
    return f"{value if is_shared and unit else low} to {high}"


def ratio_text(middle: float, low: float, high: float) -> str:
    """A ratio with its interval: `1.012 (1.001 to 1.023)`."""
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def count_text(number: int, noun: str) -> str:
    """`1 case`, `1,234 cases`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def without_numbers(sentence: str) -> str:
    """The sentence with N for each number: the same for all that differ in numbers alone.

    A number is no part of a name or a version: `m256` and `2.13.0` are words.
    """
    return _NUMBER.sub("N", sentence)


def in_common(alike: Sequence[str]) -> str:
    """The sentence that all of these are, with the least and the greatest where they differ in numbers."""
    spans = []
    for numbers in zip(*map(_NUMBER.findall, alike), strict=True):
        low, high = min(numbers, key=float), max(numbers, key=float)
        spans.append(low if low == high else f"{low} to {high}")
    return _NUMBER.sub(lambda _: spans.pop(0), alike[0])
