"""A flag is seen in every kind of figure: hollow where it makes a time suspect, and by name and number."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from bench.store.schema import Measurement
from kernels.gemm.problem import Gemm
from plots.base.page import Captioned
from plots.figures import every_figure
from tests.plots.drawn import legend, loaded, opened, said, solid_and_hollow
from tests.plots.synthetic import H100, NO_TIME, ceilings, row

Facts = dict[str, Any]
CONTENDED: Facts = {"pressure": 0.5}
UNSETTLED: Facts = {"settled": False}
UNCONVERGED: Facts = {"stop": "budget"}
CAPPED: Facts = {"held_power": 0.5}
OF_SWEEP = ("gemm/mine-duration", "gemm/mine-rate")


def pages(folder: Path, rows: list[Measurement]) -> dict[str, Captioned]:
    return opened(every_figure.pages(loaded(folder, rows)))


def sure(one: Measurement) -> Measurement:
    """The row without a width of its interval, which could be flagged."""
    return dataclasses.replace(one, low_s=one.median_s, high_s=one.median_s)


def some(changes: dict[int, Facts]) -> list[Measurement]:
    """Ceilings, and eight sizes on one line, those of `changes` with these facts."""
    sizes = [Gemm(m=512 * i, n=512 * i, k=512 * i, dtype="float16") for i in range(1, 9)]
    mine = [row(H100, "gemm/mine", each, "cublas", low_s=None, high_s=None) for each in sizes]
    mine = [dataclasses.replace(one, **changes.get(place, {})) for place, one in enumerate(mine)]
    roofs = [one for one in ceilings(H100) if one.dtype == "float16" or not one.flop]
    return [*map(sure, roofs), *mine]


FAST: Facts = {"median_s": 1e-5, "low_s": 1e-5, "high_s": 1e-5}
"""The quickest point of all may be the one that cannot be."""


@pytest.mark.parametrize(
    ("changes", "hollow", "told"),
    [
        (
            {1: CONTENDED, 3: CONTENDED | UNSETTLED, 4: UNCONVERGED, 6: CAPPED},
            2,
            "Flagged: 1 unsettled, 2 contended (hollow); 1 unconverged, 1 power_capped.",
        ),
        ({}, 0, "No point is flagged."),
        ({7: FAST}, 1, "1 above_roof (hollow)"),
    ],
    ids=["several", "none", "too fast"],
)
def test_a_sweep_with_its_strip_and_the_roofline(
    changes: dict[int, Facts], hollow: int, told: str, tmp_path: Path
) -> None:
    drawn = pages(tmp_path, some(changes))
    for stem in (*OF_SWEEP, "roofline-float16"):
        figure = drawn[stem]
        count = 8 if stem in OF_SWEEP else 12  # with the ceilings of this type
        assert solid_and_hollow(figure, "_measured") == (count - hollow, hollow), stem
        assert told in said(figure) and ("suspect (flagged)" in legend(figure)) is bool(hollow), stem
    assert solid_and_hollow(drawn[OF_SWEEP[0]], "_ratio") == (8 - hollow, hollow)


@pytest.mark.parametrize("status", ["wrong", "escaped"])
def test_a_wrong_row_is_a_tick_and_not_a_hollow_point(tmp_path: Path, status: str) -> None:
    rows = some({2: NO_TIME | {"status": status}})
    frame = loaded(tmp_path, rows).frame
    assert frame.loc[frame["status"] == status, "flags"].tolist() == [status]
    figure = pages(tmp_path, rows)["gemm/mine-duration"]
    assert solid_and_hollow(figure, "_measured") == (7, 0) and "suspect (flagged)" not in legend(figure)
    assert f"1 of 8 cases have no time (1 {status}): ticks at the bottom." in said(figure)
    assert "No point is flagged." in said(figure)
