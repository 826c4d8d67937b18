"""What several runs show together: generations side by side, distributions, the scorecard of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pandas as pd

from plots import distribution, generations, scorecard, speedups
from plots.frame import Run
from plots.page import Page


def draw(runs: Sequence[Run], base: str, told: Callable[[str], object]) -> Iterator[tuple[str, Page]]:
    """(path without ending, page) of each figure; `base` is the device that others are held against.

    `told` gets a sentence for each device that has no case in common with it.
    """
    rows = pd.concat([run.rows for run in runs], ignore_index=True)
    yield from scorecard.draw(rows)
    yield from distribution.draw(rows)
    sheets = {run.device: run.datasheet for run in runs}
    if len(sheets) > 1:
        found, apart = speedups.compare(rows, base, sheets)
        for said in apart:
            told(said)
        if found is not None:
            yield from generations.draw(found)
