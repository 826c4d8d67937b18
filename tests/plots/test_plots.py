"""What is drawn is what was measured: every row a point, every prediction the model's, nothing made up."""

import dataclasses
import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bench.errors import UserError
from bench.judge.frame import DeviceRun
from kernels.gemm.problem import Gemm
from kernels.stream.problem import Stream
from plots.base import measured_points, prediction_lines, scale, style
from plots.base.plot_spec import Section, sections
from plots.figures import notable, roofline, sweep
from plots.figures.every_figure import pages
from tests.our_sweeps import declared_of
from tests.plots.drawn import lines, loaded, said
from tests.plots.synthetic import CPU, H100, ceilings, gemms, row, small


@pytest.fixture(scope="module")
def h100(tmp_path_factory: pytest.TempPathFactory) -> DeviceRun:
    return loaded(tmp_path_factory.mktemp("h100"), [*ceilings(H100), *gemms(H100)])


@pytest.fixture(scope="module")
def cpu(tmp_path_factory: pytest.TempPathFactory) -> DeviceRun:
    return loaded(tmp_path_factory.mktemp("cpu"), [*ceilings(CPU), *gemms(CPU)])


@pytest.fixture(scope="module")
def h100_figures(h100: DeviceRun) -> dict[str, Figure]:
    return figures(h100)


@pytest.fixture(scope="module")
def cpu_figures(cpu: DeviceRun) -> dict[str, Figure]:
    return figures(cpu)


def figures(run: DeviceRun) -> dict[str, Figure]:
    with style.look():
        return {stem: page.figure for stem, page in pages(run, declared_of(run))}


def count(figure: Figure, label: str) -> int:
    return sum(len(line.get_xdata()) for line in lines(figure, label))


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


def test_predictions_come_from_the_same_run(tmp_path: Path) -> None:
    run = loaded(tmp_path, small())
    gemm = run.frame[run.frame["sweep"] == "gemm/some"].iloc[-1]
    roof = run.roof("cold")
    assert roof.launch_s is not None
    assert gemm["predicted_s"] == pytest.approx(roof.launch_s + gemm["flop"] / roof.peak("matrix", "float32"))
    assert gemm["of_roof"] == pytest.approx(gemm["predicted_s"] / gemm["median_s"])
    assert gemm["limiter"] == "compute" and math.isnan(gemm["datasheet_s"])


def test_a_wrong_row_is_not_drawn_even_with_a_time(tmp_path: Path) -> None:
    rows = small()
    run = loaded(tmp_path, [*rows[:-1], dataclasses.replace(rows[-1], status="wrong")])
    assert run.measured == len(rows) - 1


# --- nothing is lost between rows and picture -------------------------------------------------------


@pytest.mark.parametrize("which", ["cpu", "h100"])
def test_every_measured_row_is_a_point(which: str, request: pytest.FixtureRequest) -> None:
    run: DeviceRun = request.getfixturevalue(which)
    drawn: dict[str, Figure] = request.getfixturevalue(f"{which}_figures")
    timed = run.frame[run.frame["median_s"].notna()]
    roofs = [figure for stem, figure in drawn.items() if stem.startswith("roofline")]
    assert sum(count(figure, "_measured") for figure in roofs) == int((timed["flop"] > 0).sum())
    for path in set(timed["sweep"]) - {"ceilings/launch"}:
        rows = int((timed["sweep"] == path).sum())
        quantities = {stem.removeprefix(f"{path}-").partition("-")[0] for stem in drawn if path in stem}
        assert quantities <= set(sweep.QUANTITIES) and len(quantities) >= 1
        for quantity in quantities:
            here = [f for stem, f in drawn.items() if stem.startswith(f"{path}-{quantity}")]
            assert sum(count(figure, "_measured") for figure in here) == rows, (path, quantity)


def test_no_panel_is_blank_and_nothing_is_infinite(h100_figures: dict[str, Figure]) -> None:
    for stem, figure in h100_figures.items():
        for axes in figure.axes:
            assert axes.get_lines(), stem
            assert np.isfinite([*axes.get_xlim(), *axes.get_ylim()]).all(), stem
            for line in axes.get_lines():
                assert np.isfinite(np.asarray(line.get_ydata(), dtype=float)).all(), stem


def test_labels_carry_units_and_titles_say_what_ran(h100_figures: dict[str, Figure]) -> None:
    for stem, figure in h100_figures.items():
        if "/" not in stem and not stem.startswith("roofline"):
            continue  # of the run as a whole, with tests of their own
        y = figure.axes[0].get_ylabel()
        assert re.search(r"^(duration \((s|ms|µs|ns)\)|rate \([GT]?(FLOP|B)/s\)|[GT]FLOP/s)$", y), stem
        if stem.startswith("roofline"):
            assert figure.axes[0].get_xlabel() == "arithmetic intensity (FLOP/byte)"
        for fact in ("NVIDIA H100 80GB HBM3", "driver 570.86", "torch 2.13.0", "Triton 3.7.1", "2026-11-21"):
            assert fact in said(figure), stem
        assert "commit 4f2a91c" in said(figure) and "n = " in said(figure)


def test_skipped_cases_are_ticks_and_counted(h100: DeviceRun, h100_figures: dict[str, Figure]) -> None:
    figure = h100_figures["gemm/square-rate"]
    rows = h100.frame[h100.frame["sweep"] == "gemm/square"]
    lost = rows[rows["median_s"].isna()]
    assert len(lost) and count(figure, "_unmeasured") == len(lost.groupby(["dtype", "m"]))
    assert f"{len(lost)} of {len(rows)} cases have no time ({len(lost)} skipped)" in said(figure)


def test_the_prediction_is_drawn_at_unmeasured_sizes_too(
    cpu: DeviceRun, cpu_figures: dict[str, Figure]
) -> None:
    rows = cpu.frame[(cpu.frame["sweep"] == "gemm/square") & (cpu.frame["implementation"] == "onednn")]
    figure = cpu_figures["gemm/square-rate"]
    assert count(figure, "_predicted") == len(rows) > count(figure, "_measured")
    assert all(line.get_linestyle() == "--" for line in lines(figure, "_predicted"))
    assert not lines(figure, "_datasheet")
    factor = 1e12 if "TFLOP" in figure.axes[0].get_ylabel() else 1e9
    wanted = sorted(rows["predicted_per_s"] / factor)
    drawn = sorted(y for line in lines(figure, "_predicted") for y in line.get_ydata())
    assert drawn == pytest.approx(wanted)


def test_what_does_not_exist_here_is_counted_not_marked(
    cpu: DeviceRun, cpu_figures: dict[str, Figure]
) -> None:
    rows = cpu.frame[cpu.frame["sweep"] == "gemm/square"]
    figure = cpu_figures["gemm/square-rate"]
    skipped, unsupported = (int((rows["status"] == s).sum()) for s in ("skipped", "unsupported"))
    assert unsupported and count(figure, "_unmeasured") == skipped
    assert f"Not drawn: {unsupported} cases" in said(figure)


def test_intervals_span_low_to_high(tmp_path: Path) -> None:
    figure = figures(loaded(tmp_path, small()))["gemm/some-duration"]
    (bars,) = [c for c in figure.axes[0].collections if c.get_label() == "_interval"]
    factor = 1e3 if "ms" in figure.axes[0].get_ylabel() else 1e6
    spans = sorted((low[1], high[1]) for low, high in bars.get_segments())  # type: ignore[attr-defined]
    some = [r for r in small() if r.sweep == "gemm/some"]
    wanted = sorted((r.low_s * factor, r.high_s * factor) for r in some if r.low_s and r.high_s)
    assert np.ravel(spans) == pytest.approx(np.ravel(wanted))


def test_an_interval_beyond_a_factor_of_two_ends_in_an_arrow_inside_the_axes(tmp_path: Path) -> None:
    rows = small()
    first, second = (i for i, one in enumerate(rows) if one.sweep == "gemm/some" and one.flop < 1e9)
    for i, ends in ((first, (0.0, 9.0)), (second, (0.1, 1.1))):  # of 0.0 the rate has no upper end
        low_s, high_s = ((rows[i].median_s or 0.0) * end for end in ends)
        rows[i] = dataclasses.replace(rows[i], low_s=low_s, high_s=high_s)
    drawn = figures(loaded(tmp_path, rows))
    for stem in ("gemm/some-duration", "gemm/some-rate"):
        axes = drawn[stem].axes[0]
        (bars,) = [c for c in axes.collections if c.get_label() == "_interval"]
        bottom, top = axes.get_ylim()
        for (_, low), (_, high) in bars.get_segments():  # type: ignore[attr-defined]
            assert bottom <= low < high <= top and high / low <= measured_points.REACH**2 * 1.001
        assert count(drawn[stem], "_goes_on") == 3, "two of the first, one of the second"
        words = [text.get_text() for legend in drawn[stem].legends for text in legend.get_texts()]
        assert "the interval goes on" in words
    assert "2 intervals beyond a factor of 2: not drawn." in said(drawn["roofline-float32"])


@pytest.mark.parametrize("x", ["m", "dtype"])
def test_two_places_or_words_are_bars_from_zero(cpu: DeviceRun, x: str) -> None:
    rows = cpu.frame[(cpu.frame["sweep"] == "ceilings/gemm") & cpu.frame["m"].isin([1024, 8192])]
    with style.look():
        (page,) = sweep.draw(cpu, rows, Section(x, ("dtype",) if x == "m" else ("m",)), "rate")
    (axes,) = page.figure.axes
    factor, _ = scale.scaled(rows["rate_per_s"], "flop/s")
    wanted = sorted(rows["rate_per_s"] * factor)
    assert sorted(bar.get_height() for bar in axes.patches) == pytest.approx(wanted)  # type: ignore[attr-defined]
    assert count(page.figure, "_measured") == len(rows) and not lines(page.figure, "_line")
    assert axes.get_yscale() == "linear" and axes.get_ylim()[0] == 0 < max(wanted) < axes.get_ylim()[1]
    assert [t.get_text() for t in axes.get_xticklabels()] == (
        ["1024", "8192"] if x == "m" else list(rows["dtype"].unique())
    )
    assert {f"{value:.3g}" for value in wanted if value < 999} <= {text.get_text() for text in axes.texts}
    assert not any(c.get_label() == "_predicted" for c in axes.collections), "ceilings make the prediction"


@pytest.mark.parametrize(("longest_s", "shown"), [(0.999, "duration"), (1.001, "rate")])
def test_over_three_decades_the_rate_is_shown_instead_of_the_duration(
    cpu: DeviceRun, longest_s: float, shown: str
) -> None:
    rows = cpu.frame[cpu.frame["rate_per_s"].notna()].head(2).assign(median_s=[1e-3, longest_s])
    assert sweep.quantities(rows, Section("m", quantity="duration")) == (shown,)
    assert sweep.quantities(rows, Section("m", quantity="duration", per=("m",))) == ("duration",)


@pytest.mark.parametrize(("middle", "apart"), [(129, True), (100, False)])
def test_sizes_just_above_powers_of_two_are_a_line_of_their_own(
    tmp_path: Path, middle: int, apart: bool
) -> None:
    made = []
    for s in (64, 65, middle, 256, 257):
        problem = Gemm(m=s, n=s, k=s, dtype="float32")
        seconds = problem.flop / 1e11 * (1.25 if s % 2 else 1.0)
        times = {"median_s": seconds, "low_s": seconds * 0.99, "high_s": seconds * 1.01}
        made.append(row(CPU, "gemm/some", problem, "onednn", **times))
    figure = figures(loaded(tmp_path, made))["gemm/some-rate"]
    drawn = sorted(list(line.get_xdata()) for line in lines(figure, "_line"))
    assert drawn == ([[64, 256], [65, 129, 257]] if apart else [[64, 65, 100, 256, 257]])
    sentence = "With one element more than a power of two the rate is 80 % to 80 % of that at the power, 80 %"
    assert (sentence in said(figure)) is apart


def test_a_sweep_says_where_predictions_fail(tmp_path: Path) -> None:
    run = loaded(tmp_path, small())
    rows = run.frame[run.frame["sweep"] == "gemm/some"].copy()
    rows["median_s"] = rows["predicted_s"] * [1.0, 1.0, 3.0, 0.9]
    rows["structured_s"] = rows["median_s"] * [1.0, 1.0, 1.0, 2.0]
    levels = (prediction_lines.CALIBRATED, prediction_lines.STRUCTURED)
    roofline_says, structure_says = notable.sentences(rows, Section("m"), levels)
    assert "0.9 to 3.0 times what the calibrated roofline predicts, 1.0 times in the median" in roofline_says
    assert roofline_says.endswith("farthest from it: m=1024.")
    assert (
        "misses by more than the roofline at 1 of 4 points, most at m=4096: it predicts 2.0" in structure_says
    )
    assert list(notable.sentences(rows, Section("m"), levels[:1])) == [roofline_says]
    rows["median_s"] = rows["predicted_s"] * [1.0, 1.0, 1.4, 0.9]
    assert not list(notable.sentences(rows, Section("m"), levels[:1]))


def test_caches_are_shown_over_bytes_beside_their_size_and_memory(tmp_path: Path) -> None:
    lengths = [2**power for power in range(16, 25)]
    copies = [Stream(kind="copy", length=length, dtype="float32") for length in lengths]
    warm = [row(CPU, "ceilings/cache", copy, "aten", cache="warm") for copy in copies]
    run = loaded(tmp_path, [*ceilings(CPU), *warm])
    rows = run.frame[run.frame["sweep"] == "ceilings/cache"]
    (section,) = sections(rows, {"plot": [{"x": "length", "y": "rate", "log": ["x"]}]})
    with style.look():
        (page,) = sweep.draw(run, rows, section, "rate")
    (axes,) = page.figure.axes
    assert list(lines(page.figure, "_line")[0].get_xdata()) == [8 * length for length in lengths]
    assert "(bytes)" in axes.get_xlabel() and "last-level cache, 32 MiB" in [t.get_text() for t in axes.texts]
    assert lines(page.figure, "_cache")[0].get_xdata()[0] == 2**25
    memory = run.roof("cold").copy_byte_per_s
    assert memory and lines(page.figure, "_memory")[0].get_ydata()[0] == pytest.approx(memory * 1e-9)
    assert not lines(page.figure, "_predicted") and not lines(page.figure, "_structured")


def test_an_axis_of_ratios_ends_where_they_do() -> None:
    axes = Figure().add_subplot()
    scale.ratio(axes, [0.6, math.nan, 2.3], 5)
    low, high = axes.get_ylim()
    assert 0.5 < low < 0.6 and 2.3 < high < 2.6
    assert 1.0 in axes.get_yticks() and len(axes.get_yticks()) >= 3
    assert all(low <= tick <= high for tick in axes.get_yticks())


def test_a_roofline_needs_a_roof_and_five_points(tmp_path: Path) -> None:
    sizes = [Gemm(m=s, n=s, k=s, dtype="float32") for s in (64, 128)]
    half = Gemm(m=64, n=64, k=64, dtype="float16")
    run = loaded(tmp_path, [*ceilings(CPU), *(row(CPU, "gemm/x", each, "onednn") for each in (*sizes, half))])
    with style.look():
        assert [name for name, _ in roofline.draw(run)] == ["float32"]
    expected = "bfloat16 (4 points), float16 (no peak of it was measured), float64 (4 points)"
    assert roofline.left_out(run) == f"no roofline of {expected}"


def test_flagged_points_are_hollow(tmp_path: Path) -> None:
    rows = [dataclasses.replace(r, low_s=r.median_s, high_s=r.median_s) for r in small()]
    rows[-1] = dataclasses.replace(rows[-1], pressure=0.5)
    drawn = figures(loaded(tmp_path, rows))
    for stem in ("gemm/some-duration", "gemm/some-rate", "roofline-float32"):
        hollow = [x for x in lines(drawn[stem], "_measured") if x.get_markerfacecolor() == "white"]
        assert [len(x.get_xdata()) for x in hollow] == [1], stem


def test_the_roofline_has_its_roofs_and_ridge(
    h100: DeviceRun, h100_figures: dict[str, Figure], cpu_figures: dict[str, Figure]
) -> None:
    figure = h100_figures["roofline-float16"]
    assert len(lines(figure, "_roof")) == len(lines(figure, "_ridge")) == 2
    (ridge,) = [r for r in lines(figure, "_ridge") if r.get_markersize() == 5]
    roof = h100.roof("cold")
    peak, bandwidth = roof.peak("matrix", "float16"), roof.copy_byte_per_s
    assert peak and bandwidth and ridge.get_xdata()[0] == pytest.approx(peak / bandwidth)
    assert [c for c in figure.axes[0].collections if c.get_label() == "_band"]
    assert len(lines(cpu_figures["roofline-float32"], "_roof")) == 1


def test_neighbouring_integers_are_ticked_at_multiples_of_eight() -> None:
    axes = Figure().add_subplot()
    axes.set_xlim(1007, 1025)
    scale.swept(axes.xaxis, np.arange(1008.0, 1025.0), log=False, width_in=3)
    assert [t for t in axes.get_xticks() if 1008 <= t <= 1024] == [1008, 1016, 1024]
    (small,) = [line for line in axes.get_lines() if isinstance(line, scale.SmallTicks)]
    assert list(small.places()) == list(range(1007, 1026))


def test_small_ticks_of_decades_stay_inside_the_axis() -> None:
    axes = Figure().add_subplot()
    scale.measured(axes.yaxis, np.array([3.0, 250.0]), log=True)
    axes.set_ylim(2.5, 310.0)  # after the ticks were asked for, as when panels share an axis
    (small,) = [line for line in axes.get_lines() if isinstance(line, scale.SmallTicks)]
    assert list(small.places()) == [*range(3, 10), *range(20, 100, 10), 200, 300]


@pytest.mark.parametrize(
    ("highest", "labels"),
    [(250.0, ["1", "10", "100"]), (3e5, ["1000", "10000", "100000"]), (3e7, ["1 k", "100 k", "10 M"])],
)
def test_the_labels_of_an_axis_are_written_in_one_way(highest: float, labels: list[str]) -> None:
    axes = Figure().add_subplot()
    scale.measured(axes.yaxis, np.array([highest / 1e4, highest]), log=True)
    axes.set_ylim(highest / 1e5, highest)
    FigureCanvasAgg(axes.figure).draw()
    drawn = [label.get_text() for label in axes.get_yticklabels()]
    assert set(labels) <= set(drawn), drawn
    assert not any("e" in label for label in drawn)


@pytest.mark.parametrize(("last", "log"), [(16 * 64, False), (17 * 64, True)])
def test_x_is_logarithmic_beyond_a_span_of_sixteen(last: int, log: bool, tmp_path: Path) -> None:
    rows = [row(CPU, "gemm/x", Gemm(m=8, n=8, k=k, dtype="float32"), "onednn") for k in (64, 128, last)]
    assert (figures(loaded(tmp_path, rows))["gemm/x-rate"].axes[0].get_xscale() == "log") is log


# --- sections ---------------------------------------------------------------------------------------


def test_the_sweeps_own_section_is_taken(cpu: DeviceRun) -> None:
    rate = {"x": "k", "y": "rate", "lines": ["dtype"], "panels": ["m"], "log": ["x"]}
    duration = {"x": "k", "lines": ["dtype"], "panels": ["m"]}
    rows = cpu.frame[cpu.frame["sweep"] == "gemm/growing_k"]
    wanted = Section("k", ("dtype",), ("m",), frozenset({"x"}), quantity="rate")
    assert sections(rows, {"plot": [rate, duration]}) == [wanted], "the first of the two"
    assert [each.quantity for each in sections(rows, {"plot": [duration, rate]})] == ["duration"]


@pytest.mark.parametrize("plot", [[], [{"x": "nothing"}]])
def test_without_a_usable_section_the_most_varied_parameter_is_x(cpu: DeviceRun, plot: list[object]) -> None:
    rows = cpu.frame[cpu.frame["sweep"] == "gemm/growing_k"]
    wanted = Section("k", ("implementation",), ("m", "dtype"))
    assert sections(rows, {"plot": plot}) == sections(rows, {}) == [wanted]


@pytest.mark.parametrize("plot", [{"lines": ["k"]}, {"x": "k", "kind": "pie"}, {"x": "k", "colour": "red"}])
def test_a_plot_that_is_unknown_here_is_refused_by_its_title(cpu: DeviceRun, plot: dict[str, object]) -> None:
    rows = cpu.frame[cpu.frame["sweep"] == "gemm/growing_k"]
    with pytest.raises(
        UserError, match="the plot of 'Growing K' in a result file is none this checkout draws"
    ):
        sections(rows, {"title": "Growing K", "plot": [plot]})


def test_a_section_that_forgets_a_column_never_zigzags(h100: DeviceRun) -> None:
    rows = h100.frame[h100.frame["sweep"] == "gemm/growing_k"]
    (section,) = sections(rows, {"plot": [{"x": "k", "lines": ["dtype"]}]})
    assert (section.lines, section.panels) == (("implementation", "dtype"), ("m",))
    with style.look():
        for page in sweep.draw(h100, rows, section, "duration"):
            for line in lines(page.figure, "_line"):
                assert (np.diff(line.get_xdata()) > 0).all()


def test_a_duration_per_element_is_the_duration_divided(h100: DeviceRun) -> None:
    rows = h100.frame[h100.frame["sweep"] == "gemm/growing_k"]
    (section,) = sections(rows, {"plot": [{"x": "k", "per": ["m", "n"]}]})
    with style.look():
        assert not list(sweep.draw(h100, rows, section, "rate"))
        drawn = list(sweep.draw(h100, rows, section, "duration"))
        plain = list(sweep.draw(h100, rows, dataclasses.replace(section, per=()), "duration"))
    timed = rows[rows["median_s"].notna()]
    each = timed["median_s"] / (timed["m"] * timed["n"])
    for some, seconds in ((drawn, each), (plain, timed["median_s"])):
        factor, unit = scale.scaled(seconds, "s")
        shown = [y for page in some for line in lines(page.figure, "_measured") for y in line.get_ydata()]
        assert sorted(shown) == pytest.approx(sorted(seconds * factor))
        assert any(f"({unit})" in axes.get_ylabel() for axes in some[0].figure.axes)
    assert "duration per m x n (" in drawn[0].figure.axes[0].get_ylabel()


@pytest.mark.parametrize(
    ("values", "scale_name", "ticks"), [([7.0], "linear", [7]), ([56.0, 112.0], "log", [56, 112])]
)
def test_a_few_values_are_the_ticks_and_a_single_one_has_no_decades(
    values: list[float], scale_name: str, ticks: list[int]
) -> None:
    axes = Figure().subplots()
    axes.plot(values, values)
    scale.swept(axes.xaxis, np.array(values), log=True, width_in=3)
    assert axes.get_xscale() == scale_name
    assert [tick for tick in axes.xaxis.get_major_locator()() if tick in values] == ticks


def test_words_can_be_swept(cpu: DeviceRun) -> None:
    rows = cpu.frame[(cpu.frame["sweep"] == "ceilings/stream") & (cpu.frame["length"] == 2**26)]
    with style.look():
        (page,) = sweep.draw(cpu, rows, Section("kind"), "rate")
    assert [t.get_text() for t in page.figure.axes[-1].get_xticklabels()] == [
        "copy",
        "triad",
        "read",
        "write",
    ]


# --- looks ------------------------------------------------------------------------------------------


def test_an_implementation_looks_the_same_everywhere() -> None:
    known = [style.of_implementation(name) for name in style.IMPLEMENTATIONS]
    assert len({(k.color, k.marker) for k in known}) == len(known)
    stranger = style.of_implementation("mine")
    assert stranger == style.LineStyle("#C23B80", "h")  # and in every process
    assert stranger.color not in {k.color for k in known}
    alone = style.of_lines(["implementation"], [("triton",)])
    together = style.of_lines(["implementation"], [("aten",), ("cublas",), ("triton",)])
    assert alone[("triton",)] == together[("triton",)] == style.of_implementation("triton")


def test_lines_of_one_figure_differ() -> None:
    keys = list(itertools.product(("cublas", "triton"), ("float16", "float32"), ("NN", "NT", "TN")))
    looks = style.of_lines(["implementation", "dtype", "layout"], keys)
    assert len(set(looks.values())) == len(keys)


# --- awkward runs -----------------------------------------------------------------------------------


def test_a_single_row_is_drawn(tmp_path: Path) -> None:
    one = row(CPU, "gemm/one", Gemm(m=64, n=64, k=64, dtype="float32"), "onednn")
    drawn = figures(loaded(tmp_path, [one]))
    assert {stem: count(f, "_measured") for stem, f in drawn.items()} == {
        "gemm/one-duration": 1,
        "gemm/one-rate": 1,
    }


def test_without_ceilings_nothing_is_predicted_and_it_says_so(tmp_path: Path) -> None:
    rows = [r for r in small() if not r.sweep.startswith("ceilings")]
    run = loaded(tmp_path, rows)
    for stem, figure in figures(run).items():
        assert not lines(figure, "_predicted") and not lines(figure, "_roof"), stem
        assert "No ceilings in this run" in said(figure), stem


def test_a_missing_ceiling_is_named_as_such(tmp_path: Path) -> None:
    rows = [r for r in small() if r.sweep != "ceilings/gemm"]
    figure = figures(loaded(tmp_path, rows))["gemm/some-rate"]
    assert not lines(figure, "_predicted") and "lacks a ceiling" in said(figure)


def test_warm_rows_have_a_roofline_of_their_own(tmp_path: Path) -> None:
    rows = small()
    sizes = [Gemm(m=s, n=s, k=s, dtype="float32") for s in (64, 128, 256, 512, 1024)]
    warm = [row(CPU, "gemm/some", problem, "onednn", cache="warm") for problem in sizes]
    drawn = figures(loaded(tmp_path, [*rows, *warm]))
    assert count(drawn["roofline-float32-warm"], "_measured") == len(warm)
    assert "cold cache's" in said(drawn["roofline-float32-warm"])


def test_roofline_of_a_run_without_arithmetic_is_none(tmp_path: Path) -> None:
    rows = [r for r in ceilings(CPU) if r.operator != "gemm"]
    run = loaded(tmp_path, rows)
    assert not list(roofline.draw(run))
    assert isinstance(figures(run)["ceilings/stream-rate"].axes[0], Axes)
