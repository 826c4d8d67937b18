"""Time against error: a mark for each data type at its error and its time, a panel for each size."""

from pathlib import Path

import numpy as np
import pytest

from bench.judge.frame import DeviceRun
from bench.store.schema import Measurement
from kernels.gemm.problem import Gemm
from plots.base import style
from plots.base.plot_spec import Section
from plots.figures import accuracy
from plots.figures.every_figure import pages
from tests.plots.drawn import loaded
from tests.plots.synthetic import H100, NO_TIME, ceilings, row

ERRORS = {"float32": 4e-7, "bfloat16": 3e-3, "float8_e4m3": 2e-2}


def rows(sizes: tuple[int, ...], name: str = "cublas") -> list[Measurement]:
    return [
        row(H100, "gemm/x", _problem(m, dtype), name, relative_error=error)
        for m in sizes
        for dtype, error in ERRORS.items()
    ]


def _problem(m: int, dtype: str) -> Gemm:
    return Gemm.model_validate({"m": m, "n": m, "k": m, "layout": "TN", "dtype": dtype, "data": "normal"})


def run_of(folder: Path, given: list[Measurement]) -> DeviceRun:
    declared = {"gemm/x": {"title": "Types", "plot": [{"kind": "accuracy", "x": "m"}]}}
    return loaded(folder, [*ceilings(H100), *given], declared)


def test_a_mark_stands_at_its_error_and_its_time(tmp_path: Path) -> None:
    given = rows((512, 1024))
    run = run_of(tmp_path, given)
    with style.look():
        (page,) = accuracy.draw(run, run.frame[run.frame["sweep"] == "gemm/x"], Section("m", kind="accuracy"))
    assert [axes.get_title("left").replace(style.NO_BREAK, " ") for axes in page.figure.axes] == [
        "m=512",
        "m=1024",
    ]
    for axes, here in zip(page.figure.axes, (given[: len(ERRORS)], given[len(ERRORS) :]), strict=True):
        marks = list(axes.lines)
        at = {(float(np.ravel(line.get_xdata())[0]), float(np.ravel(line.get_ydata())[0])) for line in marks}
        assert at == {(one.relative_error, one.median_s) for one in here}
        assert len({line.get_marker() for line in marks}) == len(ERRORS)
        assert axes.get_xscale() == axes.get_yscale() == "log"


def test_what_has_no_time_or_no_error_has_no_mark(tmp_path: Path) -> None:
    lost = row(H100, "gemm/x", _problem(512, "float16"), "cublas", relative_error=1e-4, **NO_TIME)
    exact = row(H100, "gemm/x", _problem(512, "float64"), "cublas", relative_error=0.0)
    run = run_of(tmp_path, [*rows((512,)), lost, exact])
    with style.look():
        (page,) = accuracy.draw(run, run.frame[run.frame["sweep"] == "gemm/x"], Section("m", kind="accuracy"))
    (axes,) = page.figure.axes
    assert len(axes.lines) == len(ERRORS)
    (legend,) = page.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(ERRORS)  # the smallest error first


@pytest.mark.parametrize("names", [("cublas",), ("cublas", "triton")])
def test_each_implementation_has_a_page_of_its_own(tmp_path: Path, names: tuple[str, ...]) -> None:
    run = run_of(tmp_path, [one for name in names for one in rows((512,), name)])
    with style.look():
        drawn = [stem for stem, _ in pages(run, {"gemm/x": {"plot": [{"kind": "accuracy", "x": "m"}]}})]
    assert [stem for stem in drawn if stem.startswith("gemm/x")] == [
        "gemm/x-accuracy", "gemm/x-accuracy-2"
    ][: len(names)]  # fmt: skip
