"""The staircase and what it is drawn beside: every row a point, every step where tiles and waves say."""

import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from bench.judge.frame import DeviceRun
from kernels.gemm.problem import Gemm
from plots.base import style
from plots.base.plot_spec import Section, sections
from plots.figures import quantization
from plots.figures.every_figure import pages
from tests.plots.drawn import lines, loaded, said
from tests.plots.synthetic import CPU, H100, NO_TIME, ceilings, quantized, row, with_frame

SMS = 132
WAVES = [Gemm(m=3072, n=n, k=4096, dtype="float16", layout="NT") for n in range(1344, 3009, 64)]
TILED = ("cublaslt-256x128", "triton-256x128")
PLAIN = ("cublas", "triton")


def drawn(run: DeviceRun, x: str = "n", sweep: str = "gemm/waves") -> list[Figure]:
    with style.look():
        return [
            page.figure for page in quantization.draw(run, run.frame[run.frame["sweep"] == sweep], Section(x))
        ]


@pytest.fixture(scope="module")
def waves(tmp_path_factory: pytest.TempPathFactory) -> DeviceRun:
    return loaded(tmp_path_factory.mktemp("waves"), list(quantized(H100, "gemm/waves", iter(WAVES))))


@pytest.fixture(scope="module")
def figures(waves: DeviceRun) -> list[Figure]:
    return drawn(waves)


def measured(figure: Figure, axes: int) -> list[tuple[float, float]]:
    of = lines(figure.axes[axes], "_measured")
    return sorted((x, y) for line in of for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True))


def test_a_page_for_each_tile(figures: list[Figure]) -> None:
    assert len(figures) == 2
    for figure, tile in zip(figures, ("256x128", "128x128"), strict=True):
        assert f"gemm/waves: tiles of {tile}, float16, k=4096, NT, m=3072" in said(figure)
        assert [axes.get_ylabel().split(" (")[0] for axes in figure.axes] == ["rate", "duration", "share"]
        assert figure.axes[2].get_xlabel() == "columns of B and C, n"


def test_points_and_intervals_are_the_rows(waves: DeviceRun, figures: list[Figure]) -> None:
    rows = waves.frame[waves.frame["implementation"].isin([*TILED, *PLAIN])]
    assert figures[0].axes[0].get_ylabel() == "rate (TFLOP/s)"
    assert figures[0].axes[1].get_ylabel() == "duration (µs)"
    flop = 2.0 * rows["m"] * rows["n"] * rows["k"]
    wanted = (flop / rows["median_s"] * 1e-12, rows["median_s"] * 1e6)
    for axes, values in enumerate(wanted):
        found = measured(figures[0], axes)
        assert np.ravel(found) == pytest.approx(np.ravel(sorted(zip(rows["n"], values, strict=True))))
    ends = [(flop / rows["high_s"] * 1e-12, flop / rows["low_s"] * 1e-12)]
    ends.append((rows["low_s"] * 1e6, rows["high_s"] * 1e6))
    for axes, (low, high) in enumerate(ends):
        bars = [c for c in figures[0].axes[axes].collections if c.get_label() == "_interval"]
        spans = sorted((a[1], b[1]) for bar in bars for a, b in bar.get_segments())  # type: ignore[attr-defined]
        assert np.ravel(spans) == pytest.approx(np.ravel(sorted(zip(low, high, strict=True))))


def wave(n: int) -> int:
    """Waves of 256 x 128 tiles for m = 3072, by hand: 12 rows of tiles, 132 at a time."""
    return math.ceil(12 * math.ceil(n / 128) / SMS)


def test_the_staircase_has_one_number_from_the_rows(waves: DeviceRun, figures: list[Figure]) -> None:
    steps, rates = lines(figures[0].axes[1], "_predicted"), lines(figures[0].axes[0], "_predicted")
    assert len(steps) == len(rates) == len(TILED)
    for name, duration, rate in zip(TILED, steps, rates, strict=True):
        rows = waves.frame[(waves.frame["implementation"] == name) & ~waves.frame["suspect"]]
        full = [n for n in rows["n"] if 12 * math.ceil(n / 128) % SMS in (0, 120)]
        some = rows[rows["n"].isin(full)]
        seconds = np.median(some["median_s"] / some["n"].map(wave))
        x = duration.get_xdata()
        assert (x == rate.get_xdata()).all() and (x[0], x[-1]) == (1344, 3008)
        assert {1408, 1409, 2816, 2817} <= set(x)
        wanted = [seconds * wave(n) * 1e6 for n in x]
        assert duration.get_ydata() == pytest.approx(wanted)
        assert rate.get_ydata() == pytest.approx(2 * 3072 * 4096 * x / (np.array(wanted) * 1e-6) * 1e-12)
        assert duration.get_color() == style.of_implementation(name).color
        assert f"{name} {seconds * 1e6:.4g} µs ({len(some)} points)" in said(figures[0])


def test_flagged_points_do_not_calibrate(tmp_path: Path, figures: list[Figure]) -> None:
    """Four of the six with a full wave are absurd, and flagged."""
    absurd = {"median_s": 9.0, "low_s": 8.9, "high_s": 9.1, "settled": False}
    rows = [
        dataclasses.replace(one, **absurd)
        if json.loads(one.parameters)["n"] in (1344, 1408, 2624, 2688)
        else one
        for one in quantized(H100, "gemm/waves", iter(WAVES))
    ]
    figure = drawn(loaded(tmp_path, rows))[0]
    highest = [max(line.get_ydata()) for line in lines(figure.axes[0], "_predicted")]
    before = [max(line.get_ydata()) for line in lines(figures[0].axes[0], "_predicted")]
    assert highest == pytest.approx(before, rel=0.03) and "µs (2 points)" in said(figure)


def test_verticals_stand_where_a_wave_or_a_tile_ends(figures: list[Figure]) -> None:
    for axes in range(3):
        assert [line.get_xdata()[0] for line in lines(figures[0].axes[axes], "_wave_edge")] == [1408, 2816]
        tiles = [line.get_xdata()[0] for line in lines(figures[0].axes[axes], "_tile_edge")]
        assert tiles == [n for n in range(1408, 3008, 128) if n not in (1408, 2816)]


def test_the_strip_says_how_full_the_last_wave_is(figures: list[Figure]) -> None:
    (filled,), (useful,) = lines(figures[0].axes[2], "_last_wave"), lines(figures[0].axes[2], "_useful")
    for x, share, inside in zip(filled.get_xdata(), filled.get_ydata(), useful.get_ydata(), strict=True):
        count = 12 * math.ceil(x / 128)
        assert share == pytest.approx((count % SMS or SMS) / SMS)
        assert inside == pytest.approx(3072 * x / (count * 256 * 128))
    assert min(filled.get_ydata()) == pytest.approx(12 / SMS) and max(filled.get_ydata()) == 1.0


def test_what_stands_still_is_never_mixed(tmp_path: Path) -> None:
    """Two m, two dtypes and a k that moves: a page for each that has a line, none for a single point."""
    every = itertools.product((256, 512), ("float16", "tf32"), (128, 256))
    still = [Gemm(m=m, n=n, k=4096, dtype=dtype) for m, dtype, n in every]
    moving = [Gemm(m=1024, n=n, k=n, dtype="float16") for n in (128, 256, 512)]
    rows = list(quantized(H100, "gemm/waves", iter([*still, *moving])))
    found = [said(figure).split("  ")[0] for figure in drawn(loaded(tmp_path, rows))]
    assert len(found) == 4 * 2
    for m in (256, 512):
        for dtype in ("float16", "tf32"):
            assert sum(f"{dtype}, k=4096, NN, m={m}" in one for one in found) == 2


def test_m_and_n_that_grow_together(tmp_path: Path) -> None:
    problems = [Gemm(m=s, n=s, k=4096, dtype="float16") for s in range(512, 6145, 512)]
    figure = drawn(loaded(tmp_path, list(quantized(H100, "gemm/waves", iter(problems)))), x="m")[0]
    assert figure.axes[2].get_xlabel() == "rows of A and C, m = n"
    sizes = range(512, 6144)
    counts = [math.ceil(s / 256) * math.ceil(s / 128) for s in range(512, 6146)]
    edges = [s for s, a, b in zip(sizes, counts, counts[1:], strict=False) if -(-b // SMS) > -(-a // SMS)]
    assert [line.get_xdata()[0] for line in lines(figure.axes[0], "_wave_edge")] == edges
    (step,) = [line for line in lines(figure.axes[1], "_predicted") if line.get_color() == style.INDIGO]
    ratios = step.get_ydata() / step.get_ydata()[0]
    assert ratios == pytest.approx([math.ceil(counts[x - 512] / SMS) for x in step.get_xdata()])


def test_a_case_without_a_time_is_counted(tmp_path: Path) -> None:
    rows = list(quantized(H100, "gemm/waves", iter(WAVES)))
    rows[0] = dataclasses.replace(rows[0], **NO_TIME)
    assert "1 further cases have no time." in said(drawn(loaded(tmp_path, rows))[0])


# --- which sweeps want it ---------------------------------------------------------------------------


TILES = {"plot": [{"kind": "quantization", "x": "n"}]}


def test_a_sweep_asks_for_it(waves: DeviceRun) -> None:
    both = {"plot": [*TILES["plot"], {"x": "n", "panels": ["dtype"]}]}
    assert sections(waves.frame, both) == [
        Section("n", kind="quantization"),
        Section("n", panels=("dtype",), quantity="duration"),
    ]
    with style.look():
        stems = [stem for stem, _ in pages(waves, {"gemm/waves": TILES})]
    assert [s for s in stems if "gemm/" in s] == ["gemm/waves-quantization", "gemm/waves-quantization-2"]


def test_where_no_tile_can_be_forced_there_is_none(tmp_path: Path) -> None:
    rows = [row(CPU, "gemm/waves", problem, "onednn") for problem in WAVES]
    # Even if it had times there, as interpreted: a core is no SM.
    rows += [row(CPU, "gemm/waves", problem, "triton-256x128") for problem in WAVES]
    run = loaded(tmp_path, rows)
    assert [one.kind for one in sections(run.frame, TILES)] == ["curve"]
    assert drawn(run) == []
    with style.look():
        assert not [stem for stem, _ in pages(run, {"gemm/waves": TILES}) if "quantization" in stem]
    # A GPU that did not get to run them has none either, and k is nothing that tiles quantize.
    plain = [row(H100, "gemm/waves", problem, "cublas") for problem in WAVES]
    run = loaded(tmp_path / "gpu", [*ceilings(H100), *plain])
    assert [s.kind for s in sections(run.frame[run.frame["n"].notna()], TILES)] == ["curve"]
    assert drawn(run) == []


def test_points_that_memory_bounds_do_not_set_the_height_of_the_stair(waves: DeviceRun) -> None:
    """As the guide's own figure 7, whose first cell reads 226 MB for 108 tiles."""

    def height(change: dict[str, Any]) -> float:
        rows = waves.frame.copy()
        some = (rows["sweep"] == "gemm/waves") & (rows["n"] <= 2752)
        for column, value in change.items():
            rows.loc[some, column] = value if isinstance(value, str) else rows.loc[some, column] * value
        figure = drawn(with_frame(waves, rows))[0]
        return float(max(np.max(line.get_ydata()) for line in lines(figure.axes[1], "_predicted")))

    assert height({"median_s": 3.0, "limiter": "memory"}) == pytest.approx(height({}), rel=0.03)
    assert height({"median_s": 3.0, "limiter": "compute"}) != pytest.approx(height({}), rel=0.03)


# --- the structured level ---------------------------------------------------------------------------


def modelled(run: DeviceRun, of: tuple[str, ...], seed: int = 0) -> DeviceRun:
    """The structured level speaks of these implementations: any number for each row."""
    chance = np.random.default_rng(seed)
    rows = run.frame.assign(structured_s=np.nan, structured_limiter="")
    here = rows["implementation"].isin(of)
    rows["structured_s"] = (rows["median_s"] * chance.uniform(0.5, 1.5, len(rows))).where(here)
    rows.loc[here, "structured_limiter"] = "wave tail"
    return with_frame(run, rows)


def test_the_structured_level_is_drawn_as_it_is(waves: DeviceRun, seed: int) -> None:
    run = modelled(waves, TILED, seed)
    figure = drawn(run)[0]
    rates, steps = lines(figure.axes[0], "_structured"), lines(figure.axes[1], "_structured")
    assert len(rates) == len(steps) == len(TILED)
    for name, rate, step in zip(TILED, rates, steps, strict=True):
        rows = run.frame[run.frame["implementation"] == name].sort_values("n")
        said_of = dict(zip(rows["n"], rows["structured_s"] * 1e6, strict=True))
        at = dict(zip(step.get_xdata(), step.get_ydata(), strict=True))
        assert set(said_of) <= set(at)
        assert [at[n] for n in said_of if n % 128] == pytest.approx([said_of[n] for n in said_of if n % 128])
        # Rows are 64 apart: at each edge of a tile it steps from that row to the next.
        for edge in range(1408, 3008, 128):
            assert (at[edge], at[edge + 1]) == pytest.approx((said_of[edge], said_of[edge + 64]))
        flop = 2 * 3072 * 4096 * np.asarray(step.get_xdata(), dtype=float)
        assert rate.get_ydata() == pytest.approx(flop / (np.asarray(step.get_ydata()) * 1e-6) * 1e-12)
        assert step.get_color() == style.of_implementation(name).color
        (fitted, _) = lines(figure.axes[1], "_predicted")
        assert step._dash_pattern != fitted._dash_pattern


def test_only_kernels_held_to_this_tile_have_a_modelled_stair(waves: DeviceRun) -> None:
    assert not lines(drawn(modelled(waves, PLAIN))[0].axes[1], "_structured")
    only = drawn(modelled(waves, ("triton-256x128",)))
    assert [len(lines(figure.axes[1], "_structured")) for figure in only] == [1, 0]


def test_between_far_rows_there_is_no_step(tmp_path: Path) -> None:
    problems = [Gemm(m=3072, n=n, k=4096, dtype="float16", layout="NT") for n in (512, 1536, 2560)]
    run = loaded(tmp_path, list(quantized(H100, "gemm/waves", iter(problems))))
    for line in lines(drawn(modelled(run, TILED))[0].axes[1], "_structured"):
        assert list(line.get_xdata()) == [512, 1536, 2560]
