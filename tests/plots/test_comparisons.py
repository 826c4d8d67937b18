"""What a sweep compares stands in one panel, whatever its plot says, and readers can tell the lines apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kernels
from bench.judge.frame import DeviceRun
from bench.store.parquet import Sweeps
from bench.store.schema import Measurement
from bench.sweep.load import Case, every_sweep, load_all
from kernels.gemm.problem import Gemm
from kernels.pooling.problem import Pooling
from plots.base.page import MOST_ENTRIES, Captioned
from plots.base.plot_spec import sections
from plots.figures.every_figure import pages
from tests.drawing import drawn
from tests.our_sweeps import declared_of
from tests.plots.drawn import assert_readable, legend, loaded, opened
from tests.plots.synthetic import CPU, H100, NO_TIME, Machine, ceilings, only, row

PANELS = ["kind", "direction", "layout"]


def figures(run: DeviceRun, sweeps: Sweeps) -> dict[str, Captioned]:
    return opened(pages(dataclasses.replace(run, sweeps=sweeps)))


def claim(**test: Any) -> dict[str, Any]:
    return {"id": "ML-13", "says": "They differ", "expect": "above 1.03"} | test


def poolings(machine: Machine = CPU) -> list[Measurement]:
    """Both directions, both layouts, both kinds, by one implementation."""
    return [
        row(machine, "pooling/mine", Pooling(**problem, **size), "aten")  # type: ignore[arg-type]
        for problem in (
            {"kind": kind, "direction": direction, "layout": layout}
            for kind in ("max", "average")
            for direction in ("forward", "backward")
            for layout in ("NCHW", "NHWC")
        )
        for size in (
            {"n": n, "c": 64, "h": 56, "w": 56, "window": 3, "stride": 2, "dtype": "float32"} for n in (8, 64)
        )
    ]


def in_lines(folder: Path, **more: Any) -> tuple[set[str], set[str]]:
    """(columns of the lines, those of the panels) of poolings whose plot asks for PANELS."""
    rows = loaded(folder, poolings()).frame
    (section,) = sections(rows, {"plot": [{"x": "n", "lines": "implementation", "panels": PANELS}]} | more)
    return set(section.lines), set(section.panels)


BACK, FORTH = {"direction": "backward"}, {"direction": "forward"}


@pytest.mark.parametrize(
    ("test", "lines"),
    [
        ({"ratio": {"of": BACK, "to": FORTH}}, {"direction"}),
        ({"ratio": {"of": {"direction": ["backward"]}, "to": {"direction": ["forward"]}}}, {"direction"}),
        ({"spread": {"over": "direction"}}, {"direction"}),
        (
            {"ratio": {"of": {"n": "<16"}, "to": {"n": ">=16"}, "less": {"of": BACK, "to": FORTH}}},
            {"direction"},
        ),
        ({"ratio": {"of": {"kind": "~max"}, "to": {"kind": "~average"}}}, set()),
        ({"ratio": {"pair": "x2 n"}}, set()),
        ({"slope": {"x": "n"}}, set()),
    ],
    ids=["values", "lists", "spread", "less", "patterns", "times", "slope"],
)
def test_what_a_claim_compares_is_lines_and_nothing_else(
    tmp_path: Path, test: dict[str, Any], lines: set[str]
) -> None:
    """Layouts stand side by side without a claim."""
    found, panels = in_lines(tmp_path, claims=[claim(**test)])
    assert lines <= found and {"kind", "direction"} - lines <= panels
    assert in_lines(tmp_path / "none") == ({"implementation", "layout"}, {"kind", "direction"})


def test_the_two_sides_of_a_claim_are_on_one_page_however_many_lines(tmp_path: Path) -> None:
    names = [f"cublaslt-{tile}" for tile in ("128x128", "128x256", "128x64", "256x128", "256x64", "64x128")]
    names += ["cublaslt-64x256", "cublaslt-64x64", "cublas"]
    problems = [Gemm(m=2048, n=n, k=4096, dtype="float16") for n in (1024, 2048, 4096)]
    rows = [row(H100, "gemm/tiles", each, name) for each in problems for name in names]
    run = loaded(tmp_path, [*ceilings(H100), *rows])
    sides = {"cublaslt-64x64", "cublaslt-256x128"}
    ratio = {"of": {"implementation": "cublaslt-64x64"}, "to": {"implementation": "cublaslt-256x128"}}
    kept = {"plot": [{"x": "n", "y": "rate"}], "claims": [claim(ratio=ratio)]}
    of_tiles = [figure for stem, figure in figures(run, {"gemm/tiles": kept}).items() if "gemm/tiles" in stem]
    assert len(of_tiles) > 1 and sides <= set(legend(of_tiles[0]))
    shown = [name for figure in of_tiles for name in legend(figure) if name in names]
    assert sorted(shown) == sorted(names)


# ---- axes


def products(ks: Iterable[int], m: int = 512) -> list[Measurement]:
    problems = [Gemm(m=m, n=m, k=k, dtype="float32") for k in ks]
    return [*ceilings(CPU), *(row(CPU, "gemm/x", each, "onednn") for each in problems)]


@pytest.mark.parametrize(("factor", "log"), [(1.0, False), (40.0, True)])
def test_a_far_prediction_makes_the_axis_logarithmic(tmp_path: Path, factor: float, log: bool) -> None:
    sweeps = {"gemm/x": {"plot": [{"x": "k"}]}}
    run = loaded(tmp_path, products((1024, 2048, 4096), m=4096), sweeps)
    for name in ("predicted_s", "structured_s"):
        run.frame[name] /= factor
    figure = opened(pages(run))["gemm/x-duration"]
    assert (figure.axes[0].get_yscale() == "log") is log


def test_axes_are_in_words_and_say_what_else_grows(tmp_path: Path) -> None:
    squares = [Gemm(m=s, n=s, k=s, dtype="float32") for s in (512, 1024, 2048)]
    rows = [row(CPU, "gemm/square", each, "onednn") for each in squares]
    kept = {"gemm/square": {"title": "Squares", "plot": [{"x": "m"}]}, "gemm/x": {"plot": [{"x": "k"}]}}
    drawn = figures(loaded(tmp_path, [*rows, *products((512, 1024, 2048))]), kept)
    square, long = drawn["gemm/square-duration"], drawn["gemm/x-duration"]
    assert square.axes[-1].get_xlabel() == "rows of A and C, m = n = k"
    assert long.axes[-1].get_xlabel() == "columns of A and rows of B, k"
    assert square.texts[0].get_text() == "Squares (gemm/square): duration"


# ---- every sweep of the checkout

DRAWN = drawn(every_sweep(), 3, "sweeps whose figures are drawn")


def on_h100(cases: Iterable[Case]) -> Iterator[Measurement]:
    """Rows of a made-up H100, with each implementation that has one there."""
    for case in cases:
        missing = case.problem.missing(case.implementation, "cuda", (9, 0))
        missing = missing or case.problem.refusal(case.implementation)
        lost = NO_TIME | {"status": "unsupported"} if missing else {}
        made = row(H100, case.sweep, case.problem, case.implementation, **lost)
        yield dataclasses.replace(made, cache=case.cache, role=case.role)


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_the_figures_of_a_sweep_can_be_read(path: Path, tmp_path: Path) -> None:
    (sweep,) = load_all([path], kernels.problem, 132)
    run = loaded(tmp_path, [*ceilings(H100), *on_h100(case for case in sweep.cases if case.threads == "all")])
    one = only(run, [sweep.name])
    found = figures(one, declared_of(one))
    assert found or not sweep.sweep.plot
    for stem, figure in found.items():
        assert_readable(figure, stem)
        assert len(legend(figure)) <= MOST_ENTRIES, (stem, legend(figure))
