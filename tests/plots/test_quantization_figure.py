"""The staircase and what it is drawn beside: every row a point, every step where tiles and waves say."""

import dataclasses
import json
import math
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
from tests.plots.drawn import heights, lines, loaded, opened, points, said, spans
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


def wave(n: int) -> int:
    """Waves of 256 x 128 tiles for m = 3072, by hand: 12 rows of tiles, 132 at a time."""
    return math.ceil(12 * math.ceil(n / 128) / SMS)


def test_the_staircase_has_one_number_from_the_rows(waves: DeviceRun, figures: list[Captioned]) -> None:
    steps, rates = (lines(figures[0].axes[place], "_predicted") for place in (1, 0))
    for name, duration, rate in zip(TILED, steps, rates, strict=True):
        rows = waves.frame[(waves.frame["implementation"] == name) & ~waves.frame["suspect"]]
        full = [n for n in rows["n"] if 12 * math.ceil(n / 128) % SMS in (0, 120)]
        some = rows[rows["n"].isin(full)]
        seconds = np.median(some["median_s"] / some["n"].map(wave))
        x = duration.get_xdata()
        assert (x == rate.get_xdata()).all() and (x[0], x[-1]) == (1344, 3008)
        assert {1408, 1409, 2816, 2817} <= set(x)
        wanted = np.array([seconds * wave(n) for n in x])
        assert duration.get_ydata() == pytest.approx(wanted * 1e6)
        assert rate.get_ydata() == pytest.approx(2e-12 * 3072 * 4096 * x / wanted)
        assert duration.get_color() == style.of_implementation(name).color
        assert f"{name} {seconds * 1e6:.4g} µs ({len(some)} points)" in said(figures[0])


def test_flagged_points_do_not_calibrate(tmp_path: Path, figures: list[Captioned]) -> None:
    """Four of the six with a full wave are absurd, and flagged."""
    absurd = {"median_s": 9.0, "low_s": 8.9, "high_s": 9.1, "settled": False}
    rows = staircase()
    for place, one in enumerate(rows):
        if json.loads(one.parameters)["n"] in (1344, 1408, 2624, 2688):
            rows[place] = dataclasses.replace(one, **absurd)
    figure = drawn(loaded(tmp_path, rows))[0]
    highest, before = (max(heights(of.axes[0], "_predicted")) for of in (figure, figures[0]))
    assert highest == pytest.approx(before, rel=0.03) and "µs (2 points)" in said(figure)


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
    stems = opened(pages(waves, {"gemm/waves": TILES}))
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


def test_points_that_memory_bounds_do_not_set_the_height_of_the_stair(waves: DeviceRun) -> None:
    """As the guide's own figure 7, whose first cell reads 226 MB for 108 tiles."""

    def height(limiter: str, times: float) -> float:
        rows = waves.frame.copy()
        some = (rows["sweep"] == "gemm/waves") & (rows["n"] <= 2752)
        rows.loc[some, "limiter"] = limiter
        rows.loc[some, "median_s"] *= times
        return max(heights(drawn(with_frame(waves, rows))[0].axes[1], "_predicted"))

    plain = height("compute", 1.0)
    assert height("memory", 3.0) == pytest.approx(plain, rel=0.03)
    assert height("compute", 3.0) != pytest.approx(plain, rel=0.03)


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
    fitted, _ = lines(figure.axes[1], "_predicted")
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
        assert step._dash_pattern != fitted._dash_pattern
