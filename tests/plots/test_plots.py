"""What is drawn is what was measured: every row a point, every prediction the model's, nothing made up."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bench.judge.frame import DeviceRun
from kernels.gemm.problem import Gemm
from kernels.stream.problem import Stream
from plots.base import scale
from plots.base.page import Captioned
from plots.base.plot_spec import Section, sections
from plots.figures import sweep
from plots.figures.every_figure import pages
from tests.our_sweeps import declared_of
from tests.plots import drawn as reading
from tests.plots.drawn import heights, lines, loaded, opened, points, said, spans
from tests.plots.synthetic import CPU, H100, Machine, ceilings, gemms, row, small


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A run and all of its figures."""

    run: DeviceRun
    figures: dict[str, Captioned]


def figures(run: DeviceRun) -> dict[str, Captioned]:
    return opened(pages(dataclasses.replace(run, sweeps=declared_of(run))))


def drawn(folder: Path, machine: Machine) -> Drawn:
    run = loaded(folder, [*ceilings(machine), *gemms(machine)])
    return Drawn(run, figures(run))


@pytest.fixture(scope="module")
def h100(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    return drawn(tmp_path_factory.mktemp("h100"), H100)


@pytest.fixture(scope="module")
def cpu(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    return drawn(tmp_path_factory.mktemp("cpu"), CPU)


# --- the numbers ------------------------------------------------------------------------------------


def test_derived_columns_by_hand(tmp_path: Path) -> None:
    problem = Gemm(m=100, n=200, k=300, dtype="float32")
    one = row(CPU, "gemm/x", problem, "onednn", median_s=2e-3, low_s=1e-3, high_s=4e-3)
    copy = Stream(kind="copy", length=1000, dtype="float32")
    rows = loaded(tmp_path, [one, row(CPU, "x", copy, "aten", median_s=1e-6)]).frame
    flop, byte = 2 * 100 * 200 * 300, 4 * (100 * 300 + 300 * 200 + 100 * 200)
    first, second = rows.iloc[0], rows.iloc[1]
    assert first["rate_per_s"] == first["flop_per_s"] == pytest.approx(flop / 2e-3)
    assert (first["rate_low_per_s"], first["rate_high_per_s"]) == pytest.approx((flop / 4e-3, flop / 1e-3))
    assert first["intensity"] == pytest.approx(flop / byte)
    assert second["rate_per_s"] == pytest.approx(8000 / 1e-6) and math.isnan(second["flop_per_s"])
    assert first["flags"] == "noisy" and first["suspect"]


# --- nothing is lost between rows and picture -------------------------------------------------------


@pytest.mark.parametrize("which", ["cpu", "h100"])
def test_every_measured_row_is_a_point(which: str, request: pytest.FixtureRequest) -> None:
    of: Drawn = request.getfixturevalue(which)
    timed = of.run.frame[of.run.frame["median_s"].notna()]
    roofs = [figure for stem, figure in of.figures.items() if stem.startswith("roofline")]
    assert sum(len(points(figure, "_measured")) for figure in roofs) == int((timed["flop"] > 0).sum())
    for path in set(timed["sweep"]) - {"ceilings/launch"}:
        quantities = {stem.removeprefix(f"{path}-").partition("-")[0] for stem in of.figures if path in stem}
        assert quantities <= set(sweep.QUANTITIES) and quantities
        for quantity in quantities:
            here = [f for stem, f in of.figures.items() if stem.startswith(f"{path}-{quantity}")]
            count = sum(len(points(figure, "_measured")) for figure in here)
            assert count == int((timed["sweep"] == path).sum()), (path, quantity)


def test_cases_without_a_time_are_ticks_and_counted(h100: Drawn) -> None:
    rows = h100.run.frame[h100.run.frame["sweep"] == "gemm/square"]
    lost = rows[rows["median_s"].isna()]
    ticks = points(h100.figures["gemm/square-rate"], "_unmeasured")
    assert len(lost) and sorted(x for x, _ in ticks) == sorted(
        m for _, m in lost.groupby(["dtype", "m"]).groups
    )
    told = f"{len(lost)} of {len(rows)} cases have no time ({len(lost)} skipped)"
    assert told in said(h100.figures["gemm/square-rate"])


def test_the_prediction_is_drawn_at_unmeasured_sizes_and_what_does_not_exist_here_is_counted(
    cpu: Drawn,
) -> None:
    rows = cpu.run.frame[cpu.run.frame["sweep"] == "gemm/square"]
    figure = cpu.figures["gemm/square-rate"]
    known = rows[rows["implementation"] == "onednn"]
    factor = 1e12 if "TFLOP" in figure.axes[0].get_ylabel() else 1e9
    assert heights(figure, "_predicted") == pytest.approx(sorted(known["predicted_per_s"] / factor))
    assert len(known) > len(points(figure, "_measured")) and not lines(figure, "_datasheet")
    assert all(line.get_linestyle() == "--" for line in lines(figure, "_predicted"))
    skipped, unsupported = (int((rows["status"] == s).sum()) for s in ("skipped", "unsupported"))
    assert unsupported and len(points(figure, "_unmeasured")) == skipped
    assert f"Not drawn: {unsupported} cases" in said(figure)


def test_intervals_span_low_to_high_and_stretch_no_axis(tmp_path: Path) -> None:
    rows = small()
    first, *_ = (i for i, one in enumerate(rows) if one.sweep == "gemm/some")
    rows[first] = dataclasses.replace(rows[first], low_s=0.0, high_s=1e3)  # whose rate has no upper end
    found = figures(loaded(tmp_path, rows))
    axes = found["gemm/some-duration"].axes[0]
    factor = 1e3 if "ms" in axes.get_ylabel() else 1e6
    wanted = [(r.low_s * factor, r.high_s * factor) for r in rows[first:] if r.low_s is not None and r.high_s]
    assert np.ravel(spans(axes)) == pytest.approx(np.ravel(sorted(wanted)))
    assert axes.get_ylim()[1] < 1e6 and len(spans(found["gemm/some-rate"])) == len(wanted)


def test_words_are_bars_from_zero(cpu: Drawn) -> None:
    frame = cpu.run.frame
    rows = frame[(frame["sweep"] == "ceilings/gemm") & frame["m"].isin([1024, 8192])]
    (figure,) = reading.figures(sweep.draw(cpu.run, rows, Section("dtype", ("m",)), "rate"))
    (axes,) = figure.axes
    factor, _ = scale.scaled(rows["rate_per_s"], "flop/s")
    wanted = sorted(rows["rate_per_s"] * factor)
    assert sorted(bar.get_height() for bar in axes.patches) == pytest.approx(wanted)  # type: ignore[attr-defined]
    assert len(points(figure, "_measured")) == len(rows) and not lines(figure, "_line")
    assert axes.get_yscale() == "linear" and axes.get_ylim()[0] == 0 < max(wanted) < axes.get_ylim()[1]
    assert [t.get_text() for t in axes.get_xticklabels()] == list(rows["dtype"].unique())
    assert not spans(axes, "_predicted"), "ceilings make the prediction"


# --- sections ---------------------------------------------------------------------------------------


RATE = {"x": "k", "y": "rate", "lines": ["dtype"], "panels": ["m"], "log": ["x"]}
GUESSED = Section("k", ("implementation",), ("m", "dtype"))


@pytest.mark.parametrize(
    ("plots", "wanted"),
    [
        ([RATE, RATE], [Section("k", ("dtype",), ("m",), frozenset({"x"}), quantity="rate")]),
        # Without a usable one, a curve over the most varied parameter.
        ([], [GUESSED]),
        ([{"x": "nothing"}], [GUESSED]),
        # As result files of before may have.
        ([{"kind": "heatmap", "x": "k", "y": "m"}], [GUESSED]),
    ],
)
def test_the_sweeps_own_section_is_taken(cpu: Drawn, plots: Sequence[object], wanted: list[Section]) -> None:
    rows = cpu.run.frame[cpu.run.frame["sweep"] == "gemm/growing_k"]
    assert sections(rows, {"plot": plots}) == wanted


def test_sizes_without_order_are_no_curve(tmp_path: Path) -> None:
    sizes = [(64, 900, 77), (128, 30, 4000), (32, 512, 512), (1000, 20, 3), (77, 77, 640), (5, 4096, 12)]
    made = [row(H100, "gemm/x", Gemm(m=m, n=n, k=k, dtype="float16"), "cublas") for m, n, k in sizes]
    rows = loaded(tmp_path, [*ceilings(H100), *made]).frame
    assert sections(rows[rows["sweep"] == "gemm/x"], {}) == []


def test_a_section_that_forgets_a_column_never_zigzags(h100: Drawn) -> None:
    rows = h100.run.frame[h100.run.frame["sweep"] == "gemm/growing_k"]
    (section,) = sections(rows, {"plot": [{"x": "k", "lines": ["dtype"]}]})
    assert (section.lines, section.panels) == (("implementation", "dtype"), ("m",))
    for figure in reading.figures(sweep.draw(h100.run, rows, section, "duration")):
        assert all((np.diff(line.get_xdata()) > 0).all() for line in lines(figure, "_line"))


def test_a_duration_per_element_is_the_duration_divided(h100: Drawn) -> None:
    rows = h100.run.frame[h100.run.frame["sweep"] == "gemm/growing_k"]
    (section,) = sections(rows, {"plot": [{"x": "k", "per": ["m", "n"]}]})
    assert not list(sweep.draw(h100.run, rows, section, "rate"))
    timed = rows[rows["median_s"].notna()]
    each = timed["median_s"] / (timed["m"] * timed["n"])
    plain = dataclasses.replace(section, per=())
    for of, seconds, label in ((section, each, "duration per m x n"), (plain, timed["median_s"], "duration")):
        pages_of = reading.figures(sweep.draw(h100.run, rows, of, "duration"))
        factor, unit = scale.scaled(seconds, "s")
        shown = sorted(y for figure in pages_of for y in heights(figure, "_measured"))
        assert shown == pytest.approx(sorted(seconds * factor))
        assert pages_of[0].axes[0].get_ylabel() == f"{label} ({unit})"


# --- awkward runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "told"),
    [("ceilings", "No ceilings in this run"), ("ceilings/gemm", "This run lacks a ceiling")],
)
def test_without_its_ceilings_nothing_is_predicted_and_it_says_so(
    tmp_path: Path, missing: str, told: str
) -> None:
    found = figures(loaded(tmp_path, [one for one in small() if not one.sweep.startswith(missing)]))
    for stem, figure in found.items():
        if stem.startswith(("gemm/some", "roofline")):
            assert not lines(figure, "_predicted") and not lines(figure, "_roof"), stem
            assert told in said(figure), stem
