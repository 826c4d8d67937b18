"""The matrix that shows how far one device's calibration predicts another."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from plots.figures import compared
from tests.plots import drawn as reading
from tests.plots.drawn import described, lines, said


def test_a_cell_holds_its_error_and_a_missing_pair_is_blank(chance: np.random.Generator) -> None:
    names = ["nvidia-h200", "nvidia-a100-sxm4-80gb", "nvidia-l40s"]
    pairs = [pair for pair in itertools.product(names, names) if pair != (names[2], names[0])]
    table = pd.DataFrame(pairs, columns=["from", "to"])
    table["n"] = chance.integers(100, 9999, len(table))
    table["mape"] = chance.uniform(1, 150, len(table))
    (figure,) = reading.figures([compared.transfer(table, "imported: somebody 1.0")])
    (axes,) = figure.axes
    cells = axes.images[0].get_array()
    assert np.ma.is_masked(cells[2, 0]) and cells.count() == 8
    texts = {(round(y), round(x)): set[str]() for y, x in itertools.product(range(3), range(3))}
    for text in axes.texts:
        x, y = text.get_position()
        texts[round(y), round(x)].add(text.get_text())
    for one, other, n, mape in table.itertuples(index=False):
        cell = names.index(one), names.index(other)
        assert cells[cell] == pytest.approx(mape) and texts[cell] == {f"{mape:.1f} %", str(n)}
    assert len(lines(axes, "_itself")) == 3 and "imported: somebody 1.0" in said(figure)
    assert described(figure) == TRANSFER


TRANSFER = """\
A device predicted from another's calibration
legend:
[] predicted of h200, a100 sxm4 80gb, l40s x calibrated of h200, a100 sxm4 80gb, l40s: 15 itself"""
