"""The figures of a run as a whole: scorecard, distribution, telemetry; and the matrix of transfers."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D

from bench.judge.frame import DeviceRun
from bench.judge.score import scorecard, scores
from bench.model.predict import LEARNED, LEVELS
from bench.sweep.suites import TOUR
from kernels.gemm.problem import Gemm
from plots.base import style
from plots.base.page import Captioned, Page
from plots.figures import compared, distribution, every_figure, telemetry
from plots.figures import scorecard as scored
from tests.bench.test_forecast import H100 as TWIN
from tests.bench.test_suites import chosen
from tests.our_sweeps import declared_of
from tests.plots import drawn as reading
from tests.plots.drawn import described, legend, lines, loaded, opened, points, said, titled
from tests.plots.synthetic import CPU, H100, H200, Machine, ceilings, row

SIZES = list(itertools.product((64, 512, 4096), (32, 1056, 8192), (96, 4160)))


def made(folder: Path, machine: Machine = H100, **facts: Any) -> DeviceRun:
    """A run of eighteen products by each library; no row is suspect, ceilings calibrate."""
    dtype = "float32" if machine is CPU else "float16"
    problems = [Gemm(m=m, n=n, k=k, dtype=dtype) for m, n, k in SIZES]  # type: ignore[arg-type]
    rows = [row(machine, "gemm/some", one, name) for one in problems for name in machine.libraries]
    run = loaded(folder, [dataclasses.replace(one, **facts) for one in [*ceilings(machine), *rows]])
    run.frame["suspect"], run.frame["scored"] = False, ~run.frame["calibrating"]
    return run


def only(pages: Iterable[tuple[str, Page]]) -> Captioned:
    (figure,) = opened(pages).values()
    return figure


def predicted(rows: pd.DataFrame, chance: np.random.Generator) -> pd.DataFrame:
    """The rows with a prediction of every level, some 10 % off."""
    names = ("structured_s", "priors_s", *LEARNED)
    off = {name: rows["median_s"] * np.exp(chance.normal(0, 0.1, len(rows))) for name in names}
    return rows.assign(**off)


# ---- the tour


def test_the_figures_of_the_tour_tell_ours_from_the_library(tmp_path: Path) -> None:
    """By simulated rows of an H100: in the roofline by a dot, in the curves by the colours of the lines."""
    _, _, cases = chosen(TOUR, TWIN)
    able = [case for case in cases if not case.missing("cuda", TWIN.capability)]
    run = loaded(tmp_path, [row(H100, case.sweep, case.problem, case.implementation) for case in able])
    figures = opened(every_figure.pages(run, declared_of(run)))
    for dtype, least in (("float16", 12 + 3 * 2 * 4), ("bfloat16", 12)):
        figure = figures[f"roofline-{dtype}"]
        ours = [case for case in able if (case.implementation, case.problem.dtype) == ("triton", dtype)]
        assert "ours, in Triton" in legend(figure)
        assert len(points(figure, "_ours")) == len(ours) >= least
    curves = {"gemm/square-rate": "cublas", "batchnorm/backward-duration": "cudnn"}
    curves |= {"batchnorm/spatial_persistent-duration": "cudnn", "pooling/normalised-duration": "aten"}
    curves |= {f"activations/{way}-duration": "aten" for way in ("forward", "backward")}
    for stem, library in curves.items():
        entries = [
            (text.get_text().split()[0], handle)
            for box in figures[stem].legends
            for handle, text in zip(box.legend_handles, box.get_texts(), strict=True)
            if isinstance(handle, Line2D)
        ]
        colours = {
            who: {one.get_color() for name, one in entries if name == who} for who in (library, "triton")
        }
        assert all(colours.values()) and colours[library].isdisjoint(colours["triton"]), stem


# ---- scorecard


def test_every_scored_case_is_a_point_at_its_times(tmp_path: Path, chance: np.random.Generator) -> None:
    rows = predicted(made(tmp_path).frame, chance)
    figure = only(scored.draw(rows))
    (group,) = scorecard(rows).groups
    for level, column in LEVELS.items():
        axes = titled(figure, f"{level}:")
        predicted_us = np.maximum(1e6 * group.rows[column], axes.get_ylim()[0])
        (cases,) = lines(axes, "_case")
        assert cases.get_xdata() == pytest.approx(1e6 * group.rows["median_s"])
        assert cases.get_ydata() == pytest.approx(predicted_us)
    assert described(figure) == SCORECARD


SCORECARD = """\
How far predictions are off
legend: gemm | within 10 %, 25 %
[L0: datasheet, n = 36] measured (µs) (log) x predicted (µs) (log): 36 case, 2 even
[L1: calibrated, n = 36] measured (µs) (log) x - (log): 36 case, 2 even
[L2: with structure, n = 36] measured (µs) (log) x - (log): 36 case, 2 even
[L3: learned, n = 36] measured (µs) (log) x - (log): 36 case, 2 even
[L2-priors: no fit, n = 36] measured (µs) (log) x - (log): 36 case, 2 even
[] |predicted / measured - 1| (percent) (log) x - of gemm (36): 5 median, 5 mape, 4 bar"""


def test_below_stand_median_and_mean_of_every_level(tmp_path: Path, chance: np.random.Generator) -> None:
    both = [made(tmp_path, machine).frame for machine in (H100, H200)]
    rows = predicted(pd.concat(both, ignore_index=True), chance)
    axes = only(scored.draw(rows)).axes[-1]
    found = scores(scorecard(rows))
    low, high = axes.get_xlim()
    for label, values in (("_median", [one.median for one in found]), ("_mape", [one.mape for one in found])):
        drawn = lines(axes, label)
        assert sorted(line.get_xdata()[0] for line in drawn) == pytest.approx(sorted(values))
        assert low <= min(values) and max(values) <= high and len(drawn) == 2 * len(LEVELS)
        looks = [scored.LOOKS[one.level] for one in found]
        drawn_looks = [(to_hex(line.get_color()).upper(), line.get_marker()) for line in drawn]
        assert drawn_looks == [(look.color, look.marker) for look in looks]
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == [f"gemm, h100-sxm ({2 * len(SIZES)})", f"gemm, h200 ({2 * len(SIZES)})"]


def test_many_points_are_pixels(tmp_path: Path) -> None:
    rows = made(tmp_path).frame
    for times in (1, 1 + scored.MANY // (2 * len(SIZES))):
        figure = only(scored.draw(pd.concat([rows] * times, ignore_index=True)))
        assert {line.get_rasterized() for line in lines(figure, "_case")} == {times > 1}


def test_nothing_scored_is_no_figure(tmp_path: Path) -> None:
    rows = made(tmp_path).frame.assign(calibrating=True, scored=False)
    assert not opened(scored.draw(rows)) and not opened(distribution.draw(rows))


# ---- distribution


def test_a_line_is_the_share_of_cases_that_reach_so_much(tmp_path: Path) -> None:
    rows = made(tmp_path).frame
    figure = only(distribution.draw(rows))
    some = rows[~rows["calibrating"] & (rows["bound_by"] == "compute")]
    drawn = lines(titled(figure, "gemm, bound by compute"), "_cases")
    for name, line in zip(("cublas", "triton"), drawn, strict=True):
        shares = 100 * some.loc[some["implementation"] == name, "of_roof"]
        assert to_hex(line.get_color()).upper() == style.IMPLEMENTATIONS[name].color
        x, y = line.get_xdata(), line.get_ydata()
        assert list(x) == pytest.approx([*sorted(shares), max(shares)])
        assert list(y) == pytest.approx([*(100 * (shares >= at - 1e-9).mean() for at in x[:-1]), 0.0])
        assert line.get_drawstyle() == "steps-pre"
    assert described(figure) == DISTRIBUTION


DISTRIBUTION = """\
How near to the calibrated roof
legend: cublas | triton
[gemm, bound by compute, n = 8] share of the calibrated roof (percent) x cases that reach it (percent): 10 \
cases, 2 roof
[gemm, bound by launch, n = 14] share of the calibrated roof (percent) x -: 16 cases, 2 roof
[gemm, bound by memory, n = 14] share of the calibrated roof (percent) x -: 16 cases, 2 roof"""


def test_several_devices_are_lines_and_ours_are_dashed(tmp_path: Path) -> None:
    rows = pd.concat([made(tmp_path, machine).frame for machine in (H100, H200)], ignore_index=True)
    figure = only(distribution.draw(rows))
    drawn = lines(figure.axes[0], "_cases")
    colors = [style.of_device(slug).color.upper() for slug in ("h100-sxm", "nvidia-h200")]
    assert sorted((to_hex(line.get_color()).upper(), line.get_linestyle()) for line in drawn) == sorted(
        itertools.product(colors, ("-", "--"))
    )
    assert reading.legend(figure) == ["h100-sxm", "nvidia-h200"]
    assert "Solid: libraries; dashed: our kernels." in said(figure)


def test_many_cases_are_thinned_by_rank_and_the_ends_kept(
    chance: np.random.Generator, tmp_path: Path
) -> None:
    run = made(tmp_path)
    one = run.frame[~run.frame["calibrating"]].iloc[[0] * 5000].reset_index(drop=True)
    one["median_s"] = one["predicted_s"] / chance.uniform(0.2, 1.6, 5000)
    figure = only(distribution.draw(one))
    (line,) = lines(figure, "_cases")
    shares = 100 * one["predicted_s"] / one["median_s"]
    x, y = line.get_xdata(), line.get_ydata()
    assert len(x) <= distribution.POINTS + 1
    assert x[0] == pytest.approx(shares.min()) and x[-1] == 125.0
    assert np.interp(50.0, y[::-1], x[::-1]) == pytest.approx(np.median(shares), rel=0.02)
    assert f"{int((shares > 125).sum())} cases beyond 125 % stand on the right edge" in said(figure)


def test_without_ceilings_the_datasheets_roof_serves(tmp_path: Path) -> None:
    rows = made(tmp_path).frame.assign(predicted_s=np.nan)
    figure = only(distribution.draw(rows))
    assert figure.axes[-1].get_xlabel() == "share of the datasheet's roof (percent)"
    assert not opened(distribution.draw(rows.assign(datasheet_s=np.nan)))


@pytest.mark.parametrize("least", [0, 1])
def test_only_a_large_run_has_a_scorecard_and_a_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    run = made(tmp_path)
    monkeypatch.setattr(every_figure, "MANY", run.measured + least)
    whole = opened(itertools.takewhile(lambda page: "/" not in page[0], every_figure.pages(run, {})))
    assert {*whole} & {"scorecard", "distribution"} == (set() if least else {"scorecard", "distribution"})


# ---- telemetry


def traced(folder: Path, machine: Machine, chance: np.random.Generator) -> tuple[DeviceRun, np.ndarray]:
    """A run whose machine is slow in its middle, rows in any order; (the run, which rows are slow)."""
    run = made(folder, machine)
    n = len(run.frame)
    order = chance.permutation(n)
    slow = (order > 0.4 * n) & (order < 0.6 * n)
    speed = np.where(slow, 0.9, 1.0) * chance.uniform(0.995, 1.005, n)
    visits = [np.array([i + 5.0]) if i % 2 else np.array([i, i + 5.0, i + 7.0]) for i in order]
    told: dict[str, Any] = {
        "utc": [f"2026-11-21T10:{i // 60:02d}:{i % 60:02d}.250+00:00" for i in order],
        "sm_clock_hz": 1.98e9 * speed,
        "power_w": 600.0 * speed,
        "temperature_c": 60.0,
        "sentinel_before_s": 1e-4 / speed,
        "sentinel_after_s": 1e-4 / speed,
        "pressure": 0.1,
        "steal": np.where(slow, 0.3, 0.0),
        "throttled": 0.0,
    }
    for name, values in {**told, "visit_at_s": pd.Series(visits)}.items():
        run.frame[name] = values
    return run, slow


@pytest.mark.parametrize(
    ("machine", "facts"),
    [
        (H100, {"SM clock\n(MHz)": ("sm_clock_hz", 1e-6), "power\n(W)": ("power_w", 1)}),
        (
            CPU,
            {"fixed product\n(µs)": ("sentinel_after_s", 1e6), "tasks waited\n(percent)": ("pressure", 100)},
        ),
    ],
    ids=["gpu", "cpu"],
)
def test_a_slow_stretch_is_marked_in_every_panel(
    tmp_path: Path, chance: np.random.Generator, machine: Machine, facts: dict[str, tuple[str, float]]
) -> None:
    run, slow = traced(tmp_path, machine, chance)
    assert telemetry.missing(run) is None
    figure = only(telemetry.draw(run))
    at = np.array([float(np.median(at)) for at in run.frame["visit_at_s"]]) / 60
    for axes, (words, (column, factor)) in zip(figure.axes, facts.items(), strict=False):
        assert axes.get_ylabel() == words
        values = factor * run.frame[column].to_numpy()
        for label, these in (("_case", ~slow), ("_slow", slow)):
            wanted = sorted(zip(at[these], values[these], strict=True))
            assert np.ravel(points(axes, label)) == pytest.approx(np.ravel(wanted))
    last = "temperature\n(°C)" if machine is H100 else "stolen by host\n(percent)"
    assert len(figure.axes) == 3 and figure.axes[-1].get_ylabel() == last
    assert figure.axes[-1].get_xlabel() == "time since the run's start (min)"
    (bar,) = lines(figure.axes[0], "_bar")
    column, factor = next(iter(facts.values()))
    median = factor * float(run.frame[column].median())
    assert bar.get_ydata()[0] == pytest.approx(0.95 * median if machine is H100 else median / 0.95)
    assert f"{slow.sum()} of {len(run.frame)} cases are" in said(figure)
    assert ("Quota held: 0 throughout." in said(figure)) is (machine is CPU)


def test_an_even_run_has_nothing_marked(tmp_path: Path, chance: np.random.Generator) -> None:
    run, _ = traced(tmp_path, H100, chance)
    run.frame["sm_clock_hz"] = chance.uniform(0.951, 1.0, len(run.frame)) * 1e9
    figure = only(telemetry.draw(run))
    assert "No case is slow." in said(figure) and not points(figure, "_slow")


def test_without_visits_a_row_stands_at_its_end(tmp_path: Path, chance: np.random.Generator) -> None:
    run, _ = traced(tmp_path, CPU, chance)
    found = telemetry.moments(run.frame.assign(visit_at_s=None))
    ended = pd.to_datetime(run.frame["utc"], utc=True)
    assert found["at_s"].is_monotonic_increasing and (found["first_s"] == found["last_s"]).all()
    assert found["at_s"].sort_index().to_numpy() == pytest.approx(
        (ended - ended.min()).dt.total_seconds().to_numpy()
    )


def test_visits_to_one_case_show_what_moved_between_them(tmp_path: Path) -> None:
    sentinel = {"sentinel_before_s": 1e-4, "sentinel_after_s": 1e-4}
    visits = {"samples_s": [1.0, 1.0, 2.0, 2.0], "visit_samples": [2, 2], "visit_at_s": [6.0, 60.0]}
    run = made(tmp_path, CPU, **sentinel, **visits)
    found = telemetry.repeated(run)
    products = sum(one.arithmetic == "matrix" for one in run.rows)
    assert len(found) == 2 * len(run.rows) and found["product"].sum() == 2 * products
    assert found["change"][:2].tolist() == pytest.approx([-1 / 3, 1 / 3]) and found["at_s"][1] == 60.0
    axes = only(telemetry.draw(run)).axes[-1]
    assert axes.get_ylabel() == "visit against\nits case (percent)"
    assert len(points(axes, "_visit")) == len(found)
    once = made(tmp_path, CPU, **sentinel)
    assert telemetry.repeated(once).empty and "visit" not in only(telemetry.draw(once)).axes[-1].get_ylabel()


@pytest.mark.parametrize(
    ("machine", "facts", "why"),
    [
        (H100, {}, "no trace of the clock: no row records it"),
        (CPU, {}, "no trace of the speed: no row records it"),
        (H100, {"source": "somebody 1.0"}, "no trace of the clock: its rows are imported"),
    ],
)
def test_a_run_that_tells_no_clock_says_so(
    tmp_path: Path, machine: Machine, facts: dict[str, str], why: str
) -> None:
    run = made(tmp_path, machine, **facts)
    assert telemetry.missing(run) == why and not opened(telemetry.draw(run))


# ---- transfer


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
