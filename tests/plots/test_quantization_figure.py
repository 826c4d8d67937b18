"""The staircase and what it is drawn beside: every row a point, every step where tiles and waves say."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.judge.frame import DeviceRun
from bench.store.schema import Measurement
from kernels.gemm.problem import Gemm
from plots.base import style
from plots.base.page import Captioned
from plots.base.plot_spec import Section, sections
from plots.figures import quantization
from plots.figures.every_figure import pages
from tests.plots import drawn as reading
from tests.plots.drawn import lines, loaded, opened, points, said, spans
from tests.plots.synthetic import CPU, H100, ceilings, quantized, row, with_frame

SMS = 132
WAVES = [Gemm(m=3072, n=n, k=4096, dtype="float16", layout="NT") for n in range(1344, 3009, 64)]
TILED = ("cublaslt-256x128", "triton-256x128")
PLAIN = ("cublas", "triton")
EDGES = range(1408, 3008, 128)
"""Sizes that fill the tiles of 256 x 128."""


def drawn(run: DeviceRun, x: str = "n") -> list[Captioned]:
    rows = run.frame[run.frame["sweep"] == "gemm/waves"]
    return reading.figures(quantization.draw(run, rows, Section(x)))


def staircase(problems: list[Gemm] = WAVES) -> list[Measurement]:
    return list(quantized(H100, "gemm/waves", iter(problems)))


@pytest.fixture(scope="module")
def waves(tmp_path_factory: pytest.TempPathFactory) -> DeviceRun:
    return loaded(tmp_path_factory.mktemp("waves"), staircase())


@pytest.fixture(scope="module")
def figures(waves: DeviceRun) -> list[Captioned]:
    return drawn(waves)


def test_points_and_intervals_are_the_rows(waves: DeviceRun, figures: list[Captioned]) -> None:
    rows = waves.frame[waves.frame["implementation"].isin([*TILED, *PLAIN])]
    tera = 2e-12 * rows["m"] * rows["n"] * rows["k"]
    rates = tuple(tera / rows[name] for name in ("median_s", "high_s", "low_s"))
    durations = tuple(1e6 * rows[name] for name in ("median_s", "low_s", "high_s"))
    for axes, (middle, low, high) in zip(figures[0].axes, (rates, durations), strict=False):
        wanted = sorted(zip(rows["n"], middle, strict=True))
        assert np.ravel(points(axes, "_measured")) == pytest.approx(np.ravel(wanted))
        assert np.ravel(spans(axes)) == pytest.approx(np.ravel(sorted(zip(low, high, strict=True))))


def test_verticals_stand_where_a_wave_or_a_tile_ends(figures: list[Captioned]) -> None:
    for axes in figures[0].axes:
        assert [line.get_xdata()[0] for line in lines(axes, "_wave_edge")] == [1408, 2816]
        tiles = [line.get_xdata()[0] for line in lines(axes, "_tile_edge")]
        assert tiles == [n for n in EDGES if n not in (1408, 2816)]


# --- which sweeps want it ---------------------------------------------------------------------------


TILES = {"plot": [{"kind": "quantization", "x": "n"}]}


def test_a_sweep_asks_for_it(waves: DeviceRun) -> None:
    both = {"plot": [*TILES["plot"], {"x": "n", "panels": ["dtype"]}]}
    assert sections(waves.frame, both) == [
        Section("n", kind="quantization"),
        Section("n", panels=("dtype",), quantity="duration"),
    ]
    stems = opened(pages(dataclasses.replace(waves, sweeps={"gemm/waves": TILES})))
    assert [stem for stem in stems if stem.startswith("gemm/waves")] == [
        "gemm/waves-quantization",
        "gemm/waves-quantization-2",
    ]


def test_where_no_tile_can_be_forced_there_is_none(tmp_path: Path) -> None:
    # Even if a CPU had times of forced tiles, as interpreted: a core is no SM.
    on_cpu = [row(CPU, "gemm/waves", each, name) for name in ("onednn", "triton-256x128") for each in WAVES]
    # A GPU that did not get to run them has none either.
    plain = [row(H100, "gemm/waves", each, "cublas") for each in WAVES]
    for rows in (on_cpu, [*ceilings(H100), *plain]):
        run = loaded(tmp_path, rows)
        assert [one.kind for one in sections(run.frame[run.frame["n"].notna()], TILES)] == ["curve"]
        assert drawn(run) == []


# --- the structured level ---------------------------------------------------------------------------


def modelled(run: DeviceRun, of: tuple[str, ...], seed: int = 0) -> DeviceRun:
    """The structured level speaks of these implementations: any number for each row."""
    here = run.frame["implementation"].isin(of)
    off = np.random.default_rng(seed).uniform(0.5, 1.5, len(run.frame))
    said_of: dict[str, Any] = {"structured_s": (run.frame["median_s"] * off).where(here)}
    said_of |= {"structured_limiter": np.where(here, "wave tail", "")}
    return with_frame(run, run.frame.assign(**said_of))


def test_the_structured_level_is_drawn_as_it_is(waves: DeviceRun, seed: int) -> None:
    run = modelled(waves, TILED, seed)
    figure = drawn(run)[0]
    rates, steps = (lines(figure.axes[place], "_structured") for place in (0, 1))
    for name, rate, step in zip(TILED, rates, steps, strict=True):
        rows = run.frame[run.frame["implementation"] == name].sort_values("n")
        said_of = dict(zip(rows["n"], rows["structured_s"] * 1e6, strict=True))
        at = dict(zip(step.get_xdata(), step.get_ydata(), strict=True))
        # Rows are 64 apart: at each edge of a tile it steps from that row to the next.
        wanted = said_of | {edge + 1: said_of[edge + 64] for edge in EDGES}
        assert at == pytest.approx(wanted)
        seconds = np.asarray(step.get_ydata()) * 1e-6
        assert rate.get_ydata() == pytest.approx(2e-12 * 3072 * 4096 * step.get_xdata() / seconds)
        assert step.get_color() == style.of_implementation(name).color


def test_without_ceilings_there_is_no_staircase(figures: list[Captioned]) -> None:
    assert "hence no prediction" in said(figures[0]) and not lines(figures[0].axes[1], "_structured")
