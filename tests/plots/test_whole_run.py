"""The figures of a run as a whole: scorecard, distribution, telemetry; and the matrix of transfers."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from bench.judge.frame import DeviceRun
from bench.judge.score import scorecard, scores
from bench.model.predict import LEARNED, LEVELS
from kernels.gemm.problem import Gemm
from plots.base import style
from plots.figures import distribution, telemetry, transfer
from plots.figures import scorecard as scored
from plots.figures.every_figure import pages
from tests.plots.drawn import lines, loaded, said
from tests.plots.synthetic import CPU, H100, H200, Machine, ceilings, row

SIZES = list(itertools.product((64, 512, 4096), (32, 1056, 8192), (96, 4160)))
PROBLEMS = [Gemm(m=m, n=n, k=k, dtype="float16") for m, n, k in SIZES]


def made(folder: Path, machine: Machine = H100, **facts: Any) -> DeviceRun:
    dtype = "float32" if machine is CPU else "float16"
    problems = [Gemm(m=m, n=n, k=k, dtype=dtype) for m, n, k in SIZES]  # type: ignore[arg-type]
    rows = [row(machine, "gemm/some", one, name) for one in problems for name in machine.libraries]
    rows = [dataclasses.replace(one, **facts) for one in [*ceilings(machine), *rows]]
    run = loaded(folder / machine.facts["device"], rows)
    run.frame["suspect"], run.frame["scored"] = False, ~run.frame["calibrating"]
    return run


def page(drawn: Any) -> Figure:
    with style.look():
        ((_, only),) = list(drawn)
    return only.figure


# ---- scorecard


def test_every_scored_case_is_a_point_at_its_times(tmp_path: Path, chance: np.random.Generator) -> None:
    rows = made(tmp_path).frame
    for name in ("structured_s", "priors_s", *LEARNED):
        rows[name] = rows["median_s"] * np.exp(chance.normal(0, 0.1, len(rows)))
    figure = page(scored.draw(rows))
    (group,) = scorecard(rows).groups
    assert len(group.rows) == 2 * len(PROBLEMS)
    panels = [axes for axes in figure.axes if axes.get_title("left")]
    assert [axes.get_title("left").split(":")[0] for axes in panels] == list(LEVELS)
    for axes, level in zip(panels, LEVELS, strict=True):
        (points,) = lines(axes, "_case")
        assert axes.get_xlabel() == "measured (µs)"
        wanted = group.rows
        assert points.get_xdata() == pytest.approx(1e6 * wanted["median_s"])
        bottom = axes.get_ylim()[0]
        assert points.get_ydata() == pytest.approx(np.maximum(1e6 * wanted[LEVELS[level]], bottom))
        assert lines(axes, "_even")[0].get_xdata() == pytest.approx(lines(axes, "_even")[0].get_ydata())
        assert len(axes.collections) == 2  # the bands


def test_below_stand_median_and_mean_of_every_level(tmp_path: Path, chance: np.random.Generator) -> None:
    rows = pd.concat([made(tmp_path, machine).frame for machine in (H100, H200)], ignore_index=True)
    for name in ("structured_s", "priors_s", *LEARNED):
        rows[name] = rows["median_s"] * np.exp(chance.normal(0, 0.1, len(rows)))
    figure = page(scored.draw(rows))
    (axes,) = [axes for axes in figure.axes if "percent" in axes.get_xlabel()]
    found = scores(scorecard(rows))
    assert len(found) == 2 * len(LEVELS)
    for label, values in (("_median", [one.median for one in found]), ("_mape", [one.mape for one in found])):
        drawn = lines(axes, label)
        assert sorted(line.get_xdata()[0] for line in drawn) == pytest.approx(sorted(values))
        for line, one in zip(drawn, found, strict=True):
            look = scored.LOOKS[one.level]
            assert (to_hex(line.get_color()).upper(), line.get_marker()) == (look.color, look.marker)
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == [f"gemm, h100-sxm ({2 * len(PROBLEMS)})", f"gemm, h200 ({2 * len(PROBLEMS)})"]
    low, high = axes.get_xlim()
    assert all(low <= one.median <= high and low <= one.mape <= high for one in found)


def test_many_points_are_pixels(tmp_path: Path) -> None:
    rows = made(tmp_path).frame
    for times in (1, 1 + scored.MANY // (2 * len(PROBLEMS))):
        figure = page(scored.draw(pd.concat([rows] * times, ignore_index=True)))
        points = [line for axes in figure.axes for line in lines(axes, "_case")]
        assert {line.get_rasterized() for line in points} == {times > 1}


def test_nothing_scored_is_no_figure(tmp_path: Path) -> None:
    rows = made(tmp_path).frame
    rows["calibrating"], rows["scored"] = True, False
    assert list(scored.draw(rows)) == [] and list(distribution.draw(rows)) == []


# ---- distribution


def test_a_line_is_the_share_of_cases_that_reach_so_much(tmp_path: Path) -> None:
    rows = made(tmp_path).frame
    figure = page(distribution.draw(rows))
    some = rows[~rows["calibrating"]]
    small = some["bound_by"] == "compute"
    panels = {axes.get_title("left").split(",")[1].strip(): axes for axes in figure.axes}
    assert set(panels) == {f"bound by {name}" for name in some["bound_by"].unique()}
    for name, line in zip(("cublas", "triton"), lines(panels["bound by compute"], "_cases"), strict=True):
        shares = 100 * some.loc[small & (some["implementation"] == name), "of_roof"]
        assert shares.size >= distribution.FEW
        assert to_hex(line.get_color()).upper() == style.IMPLEMENTATIONS[name].color
        x, y = line.get_xdata(), line.get_ydata()
        assert list(x) == pytest.approx([*sorted(shares), max(shares)])
        for at, height in zip(x[:-1], y[:-1], strict=True):
            assert height == pytest.approx(100 * (shares >= at - 1e-9).mean())
        assert y[-1] == 0.0 and line.get_drawstyle() == "steps-pre"


def test_several_devices_are_lines_and_ours_are_dashed(tmp_path: Path) -> None:
    rows = pd.concat([made(tmp_path, machine).frame for machine in (H100, H200)], ignore_index=True)
    figure = page(distribution.draw(rows))
    drawn = [
        (to_hex(line.get_color()).upper(), line.get_linestyle()) for line in lines(figure.axes[0], "_cases")
    ]
    colors = [style.of_device(slug).color.upper() for slug in ("h100-sxm", "nvidia-h200")]
    assert sorted(drawn) == sorted(itertools.product(colors, ("-", "--")))
    legend = [text.get_text() for one in figure.legends for text in one.get_texts()]
    assert legend == ["h100-sxm", "nvidia-h200"]
    assert "Solid: libraries; dashed: our kernels." in said(figure)


def test_many_cases_are_thinned_by_rank_and_the_ends_kept(
    chance: np.random.Generator, tmp_path: Path
) -> None:
    run = made(tmp_path)
    one = run.frame[~run.frame["calibrating"]].iloc[[0] * 5000].reset_index(drop=True)
    one["median_s"] = one["predicted_s"] / chance.uniform(0.2, 1.6, 5000)
    (line,) = lines(page(distribution.draw(one)).axes[0], "_cases")
    shares = 100 * one["predicted_s"] / one["median_s"]
    assert len(line.get_xdata()) <= distribution.POINTS + 1
    assert line.get_xdata()[0] == pytest.approx(shares.min()) and line.get_xdata()[-1] == 125.0
    middle = np.interp(50.0, line.get_ydata()[::-1], line.get_xdata()[::-1])
    assert middle == pytest.approx(np.median(shares), rel=0.02)
    beyond = int((shares > 125).sum())
    assert f"{beyond} cases beyond 125 % stand on the right edge" in said(page(distribution.draw(one)))


def test_without_ceilings_the_datasheets_roof_serves(tmp_path: Path) -> None:
    run = made(tmp_path)
    run.frame["predicted_s"] = np.nan
    figure = page(distribution.draw(run.frame))
    assert figure.axes[-1].get_xlabel() == "share of the datasheet's roof (percent)"
    run.frame["datasheet_s"] = np.nan
    assert list(distribution.draw(run.frame)) == []


# ---- telemetry


def traced(folder: Path, machine: Machine, chance: np.random.Generator) -> tuple[DeviceRun, np.ndarray]:
    """A run whose machine is slow in its middle, rows in any order; (the run, which rows are slow)."""
    run = made(folder, machine)
    n = len(run.frame)
    order = chance.permutation(n)
    slow = (order > 0.4 * n) & (order < 0.6 * n)
    run.frame["utc"] = [f"2026-11-21T10:{i // 60:02d}:{i % 60:02d}.250+00:00" for i in order]
    run.frame["visit_at_s"] = [
        np.array([i + 5.0]) if i % 2 else np.array([i, i + 5.0, i + 7.0]) for i in order
    ]
    speed = np.where(slow, 0.9, 1.0) * chance.uniform(0.995, 1.005, n)
    run.frame["sm_clock_hz"], run.frame["power_w"], run.frame["temperature_c"] = (
        1.98e9 * speed,
        600.0 * speed,
        60.0,
    )
    run.frame["sentinel_before_s"] = run.frame["sentinel_after_s"] = 1e-4 / speed
    run.frame["pressure"], run.frame["steal"], run.frame["throttled"] = 0.1, np.where(slow, 0.3, 0.0), 0.0
    return run, slow


@pytest.mark.parametrize("machine", [H100, CPU], ids=["gpu", "cpu"])
def test_a_slow_stretch_is_marked_in_every_panel(
    tmp_path: Path, chance: np.random.Generator, machine: Machine
) -> None:
    run, slow = traced(tmp_path, machine, chance)
    assert telemetry.missing(run) is None
    figure = page(telemetry.draw(run))
    gpu = machine is H100
    rows = run.frame
    if gpu:
        labels = ["SM clock\n(MHz)", "power\n(W)", "temperature\n(°C)"]
        facts = [1e-6 * rows["sm_clock_hz"], rows["power_w"]]
    else:
        labels = ["fixed product\n(µs)", "tasks waited\n(percent)", "stolen by host\n(percent)"]
        facts = [1e6 * rows["sentinel_after_s"], 100 * rows["pressure"]]
    assert [axes.get_ylabel() for axes in figure.axes] == labels
    wanted_at = np.array([float(np.median(at)) for at in run.frame["visit_at_s"]]) / 60
    for axes, values in zip(figure.axes, facts, strict=False):
        for label, these in (("_case", ~slow), ("_slow", slow)):
            (drawn,) = lines(axes, label)
            order = np.argsort(wanted_at[these], kind="stable")
            assert drawn.get_xdata() == pytest.approx(wanted_at[these][order])
            assert drawn.get_ydata() == pytest.approx(values.to_numpy()[these][order])
    assert figure.axes[-1].get_xlabel() == "time since the run's start (min)"
    (bar,) = lines(figure.axes[0], "_bar")
    median = float(facts[0].median())
    assert bar.get_ydata()[0] == pytest.approx(0.95 * median if gpu else median / 0.95)
    assert f"{slow.sum()} of {len(run.frame)} cases are" in said(figure)
    if not gpu:
        assert "Quota held: 0 throughout." in said(figure)


def test_an_even_run_has_nothing_marked(tmp_path: Path, chance: np.random.Generator) -> None:
    run, _ = traced(tmp_path, H100, chance)
    run.frame["sm_clock_hz"] = chance.uniform(0.951, 1.0, len(run.frame)) * 1e9
    run.frame.loc[0, "sm_clock_hz"] = 0.951e9
    run.frame["sm_clock_hz"] = run.frame["sm_clock_hz"].clip(upper=1e9)
    figure = page(telemetry.draw(run))
    slow = run.frame["sm_clock_hz"] < 0.95 * run.frame["sm_clock_hz"].median()
    assert not slow.any() and "No case is slow." in said(figure)
    assert all(len(lines(axes, "_slow")[0].get_xdata()) == 0 for axes in figure.axes)


def test_without_visits_a_row_stands_at_its_end(tmp_path: Path, chance: np.random.Generator) -> None:
    run, _ = traced(tmp_path, CPU, chance)
    run.frame["visit_at_s"] = None
    found = telemetry.moments(run.frame)
    ended = pd.to_datetime(run.frame["utc"], utc=True)
    assert found["at_s"].is_monotonic_increasing
    assert found["at_s"].sort_index().to_numpy() == pytest.approx(
        (ended - ended.min()).dt.total_seconds().to_numpy()
    )
    assert (found["first_s"] == found["last_s"]).all()


def test_visits_to_one_case_show_what_moved_between_them(tmp_path: Path) -> None:
    visits = {"samples_s": [1.0, 1.0, 2.0, 2.0], "visit_samples": [2, 2], "visit_at_s": [6.0, 60.0]}
    run = made(tmp_path, CPU, sentinel_before_s=1e-4, sentinel_after_s=1e-4, **visits)
    found = telemetry.repeated(run)
    assert len(found) == 2 * len(run.rows) and found["product"].sum() == 2 * sum(
        one.arithmetic == "matrix" for one in run.rows
    )
    assert found["change"][:2].tolist() == pytest.approx([-1 / 3, 1 / 3]) and found["at_s"][1] == 60.0
    axes = page(telemetry.draw(run)).axes[-1]
    assert axes.get_ylabel() == "visit against\nits case (percent)"
    assert sum(len(line.get_xdata()) for line in lines(axes, "_visit")) == len(found)
    once = made(tmp_path / "once", CPU, sentinel_before_s=1e-4, sentinel_after_s=1e-4)
    assert telemetry.repeated(once).empty and "visit" not in page(telemetry.draw(once)).axes[-1].get_ylabel()


def test_only_a_large_run_has_a_scorecard_and_a_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = made(tmp_path)
    for many, drawn in ((run.measured + 1, set()), (run.measured, {"scorecard", "distribution"})):
        monkeypatch.setattr("plots.figures.every_figure.MANY", many)
        with style.look():
            whole = itertools.takewhile(lambda page: "/" not in page[0], pages(run, {}))
            assert {stem for stem, _ in whole} & {"scorecard", "distribution"} == drawn


def test_a_run_that_tells_no_clock_says_so(tmp_path: Path) -> None:
    for machine, facts, why in (
        (H100, {}, "no trace of the clock: no row records it"),
        (CPU, {}, "no trace of the speed: no row records it"),
        (H100, {"source": "somebody 1.0"}, "no trace of the clock: its rows are imported"),
    ):
        run = made(tmp_path / why.replace(" ", ""), machine, **facts)
        assert telemetry.missing(run) == why and list(telemetry.draw(run)) == []


# ---- transfer


def test_a_cell_holds_its_error_and_a_missing_pair_is_blank(chance: np.random.Generator) -> None:
    names = ["nvidia-h200", "nvidia-a100-sxm4-80gb", "nvidia-l40s"]
    table = pd.DataFrame(
        [
            {
                "from": one,
                "to": other,
                "n": int(chance.integers(100, 9999)),
                "mape": float(chance.uniform(1, 150)),
            }
            for one, other in itertools.product(names, names)
            if (one, other) != (names[2], names[0])
        ]
    )
    with style.look():
        figure = transfer.page(table, "imported: somebody 1.0").figure
    (axes,) = figure.axes
    (image,) = axes.images
    cells = image.get_array()
    assert np.ma.is_masked(cells[2, 0]) and cells.count() == 8
    for one in table.itertuples():
        i, j = names.index(one[1]), names.index(one.to)
        assert cells[i, j] == pytest.approx(one.mape)
        here = [
            text.get_text()
            for text in axes.texts
            if round(text.get_position()[0]) == j and round(text.get_position()[1]) == i
        ]
        assert sorted(here) == sorted([f"{one.mape:.1f} %", str(one.n)])
    assert [text.get_text() for text in axes.get_yticklabels()] == ["h200", "a100 sxm4 80gb", "l40s"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted", "calibrated")
    assert "imported: somebody 1.0" in said(figure)
    assert len(lines(axes, "_itself")) == 3
