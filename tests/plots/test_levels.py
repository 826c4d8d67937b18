"""The three levels in the figures of a sweep: each drawn where it has something of its own to say."""

import random
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bench.judge.frame import DeviceRun
from kernels.gemm.problem import Gemm
from plots.base import prediction_lines, style
from plots.base.page import Captioned
from plots.base.plot_spec import Section
from plots.figures import sweep
from tests.drawing import run_seed
from tests.plots import drawn as reading
from tests.plots.drawn import legend, lines, loaded, said, spans
from tests.plots.synthetic import H100, ceilings, row, with_frame

SEED = run_seed()
SIZES = (256, 512, 1024, 2048, 4096)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> DeviceRun:
    """Two implementations over five sizes; the structured level is silent."""
    problems = [Gemm(m=m, n=m, k=m, dtype="float16") for m in SIZES]
    rows = [row(H100, "gemm/x", problem, name) for problem in problems for name in ("cublas", "triton")]
    run = loaded(tmp_path_factory.mktemp("plain"), [*ceilings(H100), *rows])
    silent = {"structured_s": np.nan, "structured_per_s": np.nan, "structured_limiter": ""}
    return with_frame(run, run.frame.assign(**silent))


def structured(run: DeviceRun, cublas: float, triton: float) -> DeviceRun:
    """The structured level says these multiples of the calibrated one."""
    rows = run.frame
    factor = rows["implementation"].map({"cublas": cublas, "triton": triton}).astype(float)
    said_of: dict[str, Any] = {"structured_s": rows["predicted_s"] * factor}
    said_of |= {"structured_per_s": rows["predicted_per_s"] / factor}
    said_of |= {"structured_limiter": np.where(factor.notna(), "wave tail", "")}
    return with_frame(run, rows.assign(**said_of))


def swept(run: DeviceRun) -> pd.DataFrame:
    return run.frame[run.frame["sweep"] == "gemm/x"]


def drawn(
    run: DeviceRun, quantity: prediction_lines.Quantity = "duration", per: tuple[str, ...] = ()
) -> Captioned:
    (figure,) = reading.figures(sweep.draw(run, swept(run), Section("m", per=per), quantity))
    return figure


@pytest.mark.parametrize(
    ("quantity", "columns", "factor"), [("duration", "s", 1e6), ("rate", "per_s", 1e-12)]
)
def test_three_levels_three_lines(
    plain: DeviceRun, quantity: prediction_lines.Quantity, columns: str, factor: float
) -> None:
    chance = random.Random(SEED)
    run = structured(plain, chance.uniform(1.1, 2.0), chance.uniform(0.5, 0.9))
    figure = drawn(run, quantity)
    found = lines(figure, "_structured")
    for name, line in zip(("cublas", "triton"), found, strict=True):
        some = swept(run)[swept(run)["implementation"] == name].sort_values("m")
        assert list(line.get_xdata()) == list(SIZES)
        assert line.get_ydata() == pytest.approx(some[f"structured_{columns}"] * factor)
        assert line.get_color() == style.of_implementation(name).color
    # One calibrated and one datasheet line: the two implementations share them.
    (calibrated,), (sheet,) = lines(figure, "_predicted"), lines(figure, "_datasheet")
    assert len({str(line._dash_pattern) for line in (calibrated, sheet, found[0])}) == 3
    assert sheet.get_color() == style.GREY and calibrated.get_color() not in {x.get_color() for x in found}
    assert "Refined" in said(figure)


@pytest.mark.parametrize(
    ("factor", "drawn_twice"), [(1.0, False), (1.004, False), (1.006, True), (0.994, True)]
)
def test_what_says_the_same_is_drawn_once(plain: DeviceRun, factor: float, drawn_twice: bool) -> None:
    figure = drawn(structured(plain, factor, factor))
    assert bool(lines(figure, "_structured")) is drawn_twice
    assert ("refined" in legend(figure)[-1]) is ("Refined" in said(figure)) is drawn_twice


def test_a_level_that_says_nothing_is_nowhere(plain: DeviceRun) -> None:
    figure = drawn(plain)
    assert not lines(figure, "_structured") and "refined" not in " ".join(legend(figure))
    # One implementation of two: its line, and not the other's.
    figure = drawn(structured(plain, 1.5, np.nan))
    (line,) = lines(figure, "_structured")
    assert line.get_color() == style.of_implementation("cublas").color
    # The calibrated level may be silent where the structured one speaks.
    run = structured(plain, 1.0, 1.0)
    figure = drawn(with_frame(run, run.frame.assign(predicted_s=np.nan, predicted_per_s=np.nan)))
    assert lines(figure, "_structured") and not lines(figure, "_predicted")


# --- imported ---------------------------------------------------------------------------------------


def without_interval(rows: pd.DataFrame, which: pd.Series) -> pd.DataFrame:
    ends = ["low_s", "high_s", "rate_low_per_s", "rate_high_per_s"]
    return rows.assign(**{name: rows[name].mask(which) for name in ends})


@pytest.mark.parametrize("quantity", ["duration", "rate"])
@pytest.mark.parametrize(("without", "bars"), [((), 10), (("cublas",), 5), (("cublas", "triton"), 0)])
def test_a_time_without_an_interval_has_no_bar(
    plain: DeviceRun, quantity: prediction_lines.Quantity, without: tuple[str, ...], bars: int
) -> None:
    rows = without_interval(plain.frame, plain.frame["implementation"].isin(without))
    figure = drawn(with_frame(plain, rows), quantity)
    assert len(spans(figure)) == bars
    unknown = f", unknown for {10 - bars} of 10" if bars < 10 else ""
    assert f"Medians with 95 % intervals{unknown}." in said(figure)
