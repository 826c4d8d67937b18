"""What stands out among the points of a sweep: misses of predictions, and sizes just above powers of two."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from bench.format import share_text
from plots.base import style
from plots.base.plot_spec import Section
from plots.base.prediction_lines import STRUCTURED, Level

APART, POWER, ONE_MORE = "apart", "a power of two", "one more"
"""A column that sets sizes just above a power of two apart, and its values."""
FAR = 1.5
"""Times its prediction by the roofline from which the farthest point is named."""
WORSE = 1.25
"""Factor by which another prediction must miss by more than the roofline for this to be said."""
FEWEST = 3
"""Points below which nothing is said of predictions."""


def set_apart(rows: pd.DataFrame, section: Section) -> tuple[pd.DataFrame, Section]:
    """The rows with the column APART, and the section with it in its lines, if x holds such pairs."""
    if not pd.api.types.is_numeric_dtype(rows[section.x]):
        return rows, section
    sizes = set(rows[section.x].dropna())
    powers = {size for size in sizes if float(size).is_integer() and int(size).bit_count() == 1}
    above = {size for size in sizes - powers if float(size).is_integer() and int(size - 1).bit_count() == 1}
    if sum(size - 1 in powers for size in above) < 2 or powers | above != sizes:
        return rows, section
    words = np.where(rows[section.x].isin(above), ONE_MORE, POWER)
    return rows.assign(**{APART: words}), replace(section, lines=(*section.lines, APART))


def sentences(rows: pd.DataFrame, section: Section, levels: Sequence[Level]) -> Iterator[str]:
    """Sentences on the rows of a section but suspect ones and ceilings; `levels` are drawn with them."""
    sound = rows[(rows["role"] == "measurement") & rows["median_s"].notna() & ~rows["suspect"].astype(bool)]
    predicted = sound[sound["predicted_s"].notna()]
    if len(predicted) >= FEWEST:
        yield from _of_roofline(predicted, section)
        if STRUCTURED in levels:
            yield from _of_structure(predicted, section)
    if APART in section.lines:
        yield from _of_pairs(sound, section)


def _of_roofline(rows: pd.DataFrame, section: Section) -> Iterator[str]:
    times = rows["median_s"] / rows["predicted_s"]
    far = times.map(math.log).abs()
    if far.max() > math.log(FAR):
        yield (
            f"Measured times are {_factor(times.min())} to {_factor(times.max())} times what the calibrated "
            f"roofline predicts, {_factor(times.median())} times in the median; farthest from it: "
            f"{_case(rows.iloc[int(far.argmax())], rows, section)}."
        )


def _of_structure(rows: pd.DataFrame, section: Section) -> Iterator[str]:
    structured, roofline = (rows[name] / rows["median_s"] for name in ("structured_s", "predicted_s"))
    worse = structured.map(math.log).abs() - roofline.map(math.log).abs()
    count = int((worse > math.log(WORSE)).sum())
    if count:
        place = int(worse.argmax())
        yield (
            f"The model with structure misses by more than the roofline at {count} of {len(rows)} points, "
            f"most at {_case(rows.iloc[place], rows, section)}: it predicts "
            f"{_factor(structured.iloc[place])} times the measured time, the roofline "
            f"{_factor(roofline.iloc[place])} times."
        )


def _of_pairs(rows: pd.DataFrame, section: Section) -> Iterator[str]:
    alike = [section.x, *(name for name in (*section.lines, *section.panels) if name != APART)]
    above = rows[rows[APART] == ONE_MORE]
    pairs = rows[rows[APART] == POWER].merge(above.assign(**{section.x: above[section.x] - 1}), on=alike)
    share = (pairs["rate_per_s_y"] / pairs["rate_per_s_x"]).dropna()
    if len(share):
        yield (
            f"With one element more than a power of two the rate is {share_text(share.min())} to "
            f"{share_text(share.max())} of that at the power, {share_text(share.median())} in the median."
        )


def _factor(times: float) -> str:
    return f"{times:.1f}" if 0.95 <= times < 9.95 else f"{times:.2g}"


def _case(row: pd.Series, rows: pd.DataFrame, section: Section) -> str:
    """`relu n=4`: one of the rows, by what tells it from the others."""
    names = dict.fromkeys((*section.lines, *section.panels, section.x))
    differ = [name for name in names if name != APART and rows[name].nunique(dropna=False) > 1]
    return " ".join(style.labelled(name, row[name]) for name in differ)
