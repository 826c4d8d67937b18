"""The three levels in the figures of a sweep: each drawn where it has something of its own to say."""

import random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from bench.device.datasheet import find_datasheet
from bench.judge.frame import DeviceRun, load
from bench.store.parquet import write
from kernels.gemm.problem import Gemm
from plots.base import measured_points, prediction_lines, style
from plots.base.plot_spec import Section
from plots.figures import sweep
from tests.drawing import run_seed
from tests.plots.drawn import legend, lines, said
from tests.plots.synthetic import H100, ceilings, row, with_frame

SEED = run_seed()
SIZES = (256, 512, 1024, 2048, 4096)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> DeviceRun:
    """Two implementations over five sizes; the structured level is silent."""
    problems = [Gemm(m=m, n=m, k=m, dtype="float16") for m in SIZES]
    rows = [row(H100, "gemm/x", problem, name) for problem in problems for name in ("cublas", "triton")]
    folder = tmp_path_factory.mktemp("plain")
    (run,) = load([write(folder / "run.parquet", [*ceilings(H100), *rows])], find_datasheet)
    run.frame["structured_s"], run.frame["structured_per_s"], run.frame["structured_limiter"] = (
        np.nan,
        np.nan,
        "",
    )
    return run


def structured(run: DeviceRun, ratio: dict[str, Any], limiter: str = "wave tail") -> DeviceRun:
    """The structured level says this multiple of the calibrated one, by implementation."""
    rows = run.frame.copy()
    factor = rows["implementation"].map(ratio).astype(float)
    rows["structured_s"] = rows["predicted_s"] * factor
    rows["structured_per_s"] = rows["predicted_per_s"] / factor
    rows["structured_limiter"] = np.where(factor.notna(), limiter, "")
    return with_frame(run, rows)


def drawn(run: DeviceRun, quantity: prediction_lines.Quantity = "duration") -> Figure:
    with style.look():
        rows = run.frame[run.frame["sweep"] == "gemm/x"]
        (page,) = sweep.draw(run, rows, Section("m"), quantity)
    return page.figure


@pytest.mark.parametrize("quantity", sweep.QUANTITIES)
def test_three_levels_three_lines(plain: DeviceRun, quantity: prediction_lines.Quantity) -> None:
    chance = random.Random(SEED)
    ratio = {"cublas": chance.uniform(1.1, 2.0), "triton": chance.uniform(0.5, 0.9)}
    run = structured(plain, ratio)
    figure = drawn(run, quantity)
    rows = run.frame[run.frame["sweep"] == "gemm/x"]
    unit = figure.axes[0].get_ylabel()
    factor = (1e6 if "µs" in unit else 1e3) if quantity == "duration" else 1e-12
    found = lines(figure, "_structured")
    assert len(found) == 2 and len({line.get_color() for line in found}) == 2
    for name, line in zip(("cublas", "triton"), found, strict=True):
        some = rows[rows["implementation"] == name].sort_values("m")
        column = "structured_s" if quantity == "duration" else "structured_per_s"
        assert list(line.get_xdata()) == list(SIZES)
        assert line.get_ydata() == pytest.approx(some[column] * factor)
        assert line.get_color() == style.of_implementation(name).color
    # One calibrated and one datasheet line: the two implementations share them.
    (calibrated,), (sheet,) = lines(figure, "_predicted"), lines(figure, "_datasheet")
    assert len({str(line._dash_pattern) for line in (calibrated, sheet, found[0])}) == 3
    assert sheet.get_color() == style.GREY and calibrated.get_color() not in {x.get_color() for x in found}
    words = legend(figure)
    for level in (prediction_lines.DATASHEET, prediction_lines.CALIBRATED, prediction_lines.STRUCTURED):
        assert " ".join(words).count(level.label) == 1
    assert "With structure" in said(figure)


@pytest.mark.parametrize(
    ("factor", "drawn_twice"), [(1.0, False), (1.004, False), (1.006, True), (0.994, True)]
)
def test_what_says_the_same_is_drawn_once(plain: DeviceRun, factor: float, drawn_twice: bool) -> None:
    figure = drawn(structured(plain, {"cublas": factor, "triton": factor}))
    assert bool(lines(figure, "_structured")) is drawn_twice
    assert (prediction_lines.STRUCTURED.label in legend(figure)[-1]) is drawn_twice
    assert bool(lines(figure, "_ratio_below")) is drawn_twice
    assert ("With structure" in said(figure)) is drawn_twice


def test_a_level_that_says_nothing_is_nowhere(plain: DeviceRun) -> None:
    figure = drawn(plain)
    assert not lines(figure, "_structured") and prediction_lines.STRUCTURED.label not in " ".join(
        legend(figure)
    )
    # One implementation of two: its line, and not the other's.
    figure = drawn(structured(plain, {"cublas": 1.5, "triton": np.nan}))
    (line,) = lines(figure, "_structured")
    assert line.get_color() == style.of_implementation("cublas").color
    assert len(lines(figure, "_ratio_below")) == 1


def test_structure_speaks_where_the_calibrated_level_is_silent(plain: DeviceRun) -> None:
    run = structured(plain, {"cublas": 1.0, "triton": 1.0})
    rows = run.frame.assign(predicted_s=np.nan, predicted_per_s=np.nan)
    figure = drawn(with_frame(run, rows))
    assert lines(figure, "_structured") and not lines(figure, "_predicted")


def test_the_strip_tells_the_levels_apart(plain: DeviceRun) -> None:
    run = structured(plain, {"cublas": 5.0, "triton": 7.0})
    figure = drawn(run)
    rows = run.frame[run.frame["sweep"] == "gemm/x"]
    for label, column in (("_ratio", "structured_s"), ("_ratio_below", "predicted_s")):
        found = sorted(y for line in lines(figure, label) for y in line.get_ydata())
        assert found == pytest.approx(sorted(rows[column] / rows["median_s"]))
    assert all(line.get_linestyle() == "--" for line in lines(figure, "_ratio_below"))
    assert [line.get_ydata()[0] for line in lines(figure, "_one")] == [1.0]
    low, high = figure.axes[1].get_ylim()
    every = [*(rows["structured_s"] / rows["median_s"]), *(rows["predicted_s"] / rows["median_s"])]
    assert low < min(every) and max(every) < high
    assert "markers with structure, dashed calibrated" in said(figure)
    assert "dashed calibrated" not in said(drawn(run, "rate"))


def test_a_normalised_duration_divides_every_level(plain: DeviceRun) -> None:
    run = structured(plain, {"cublas": 1.5, "triton": 1.7})
    rows = run.frame[run.frame["sweep"] == "gemm/x"]
    with style.look():
        (page,) = sweep.draw(run, rows, Section("m", per=("n",)), "duration")
    found = [y for line in lines(page.figure, "_structured") for y in line.get_ydata()]
    measured = [y for line in lines(page.figure, "_line") for y in line.get_ydata()]
    ordered = rows.sort_values(["implementation", "m"])
    assert np.divide(found, measured) == pytest.approx(ordered["structured_s"] / ordered["median_s"])


# --- imported ---------------------------------------------------------------------------------------


def imported(run: DeviceRun, which: pd.Series) -> DeviceRun:
    rows = run.frame.assign(imported=which, source=np.where(which, "somebody 1.0", None))
    return with_frame(run, without_interval(rows, which))


def without_interval(rows: pd.DataFrame, which: pd.Series) -> pd.DataFrame:
    ends = ["low_s", "high_s", "rate_low_per_s", "rate_high_per_s"]
    return rows.assign(**{name: rows[name].mask(which) for name in ends})


def test_imported_points_are_crosses_without_bars(plain: DeviceRun) -> None:
    run = imported(plain, plain.frame["operator"].notna())
    figure = drawn(run)
    assert not lines(figure, "_measured")
    crosses = lines(figure, "_imported")
    assert sum(len(line.get_xdata()) for line in crosses) == 10
    assert {line.get_marker() for line in crosses} == {measured_points.IMPORTED}
    assert not [c for axes in figure.axes for c in axes.collections if c.get_label() == "_interval"]
    assert "no interval" in said(figure) and "imported: somebody 1.0" in said(figure)
    assert {"cublas (imported)", "triton (imported)"} <= set(legend(figure))
    assert measured_points.IMPORTED not in {look.marker for look in style.IMPLEMENTATIONS.values()}


@pytest.mark.parametrize("quantity", ["duration", "rate"])
def test_a_time_without_an_interval_has_no_bar(plain: DeviceRun, quantity: prediction_lines.Quantity) -> None:
    def bars(which: pd.Series) -> tuple[int, str]:
        figure = drawn(with_frame(plain, without_interval(plain.frame, which)), quantity)
        found = [c for axes in figure.axes for c in axes.collections if c.get_label() == "_interval"]
        return sum(len(each.get_segments()) for each in found), said(figure)

    operator, implementation = (plain.frame[name] for name in ("operator", "implementation"))
    number, words = bars(operator == "nonesuch")
    assert number == 10 and "Medians with 95 % intervals." in words
    number, words = bars(implementation == "cublas")
    assert number == 5 and "Medians with 95 % intervals, unknown for 5 of 10." in words
    assert bars(operator.notna())[0] == 0
