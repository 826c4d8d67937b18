"""What stands over the points of a roofline: stated, measured, and a cache's; and the points above them."""

import dataclasses
import random
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from bench.case_name import row_name
from bench.device.datasheet import find_datasheet
from bench.format import share_text
from bench.judge.frame import DeviceRun, load
from bench.model.ceilings import Ceiling
from bench.store.parquet import write
from kernels.gemm.problem import Gemm
from plots.base import style
from plots.base.measured_points import IMPORTED
from plots.figures import roofline, roofs
from tests.drawing import run_seed
from tests.plots.drawn import legend, lines, said
from tests.plots.synthetic import H100, ceilings, row, with_frame

SEED = run_seed()
SIZES = (64, 128, 256, 512, 1024, 2048, 4096)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> DeviceRun:
    problems = [Gemm(m=m, n=m, k=m, dtype="float16") for m in SIZES]
    rows = [row(H100, "gemm/x", problem, name) for problem in problems for name in ("cublas", "triton")]
    folder = tmp_path_factory.mktemp("plain")
    (run,) = load([write(folder / "run.parquet", [*ceilings(H100), *rows])], find_datasheet)
    run.frame["structured_s"], run.frame["structured_limiter"] = np.nan, ""
    return with_cached(run, {})


def with_cached(run: DeviceRun, per_s: dict[int, float]) -> DeviceRun:
    """The run with these bandwidths by working set, and none else."""
    cached = {byte: Ceiling(rate, rate, rate, "") for byte, rate in sorted(per_s.items())}
    changed = {how: dataclasses.replace(one, cached=cached) for how, one in run.ceilings.items()}
    return dataclasses.replace(run, measured_ceilings=changed)


def drawn(run: DeviceRun) -> Figure:
    with style.look():
        return dict(roofline.draw(run))["float16"].figure


def test_without_cache_ceilings_there_is_no_cache_roof(plain: DeviceRun) -> None:
    figure = drawn(plain)
    assert not lines(figure, "_cache") and "copy that stays in a cache" not in legend(figure)


def test_a_cache_roof_is_dashed_and_ends_at_the_peak(plain: DeviceRun) -> None:
    run = with_cached(plain, {2**22: 7e12, 2**24: 6.8e12, 2**28: 3.0e12})
    figure = drawn(run)
    (cache,) = lines(figure, "_cache")
    roof = run.roof("cold")
    peak = roof.peak("matrix", "float16")
    assert peak is not None
    x, y = cache.get_xdata(), cache.get_ydata()
    assert y == pytest.approx(np.minimum(peak, np.asarray(x) * 7e12) * 1e-12)
    assert peak / 7e12 in [pytest.approx(one) for one in x], "the ridge is one of its points"
    solid = [line for line in lines(figure, "_roof") if line.get_color() == style.BLACK]
    assert cache.is_dashed() and not solid[0].is_dashed() and cache.get_linewidth() < solid[0].get_linewidth()
    assert any("7000 GB/s copy of 4 MiB" in text.get_text() for text in figure.axes[0].texts)
    assert "roofs: measured, copy inside a cache, datasheet" in legend(figure)


@pytest.mark.parametrize(
    ("per_s", "wanted"),
    [
        ({2**20: 1.39}, []),  # no quicker than memory, but for what measuring moves
        ({2**20: 1.41}, [1.41]),
        ({2**18: 9.0, 2**20: 8.8, 2**22: 5.0, 2**24: 4.0, 2**26: 2.0}, [9.0, 5.0, 2.0]),
        ({2**18: 16.0, 2**20: 8.0, 2**22: 4.0, 2**24: 2.0}, [16.0, 8.0, 4.0]),  # three at most
        ({2**18: 3.0, 2**20: 6.0, 2**22: 5.9}, [6.0]),  # a small set may be too short to be quick
    ],
)
def test_caches_are_told_apart_by_bandwidth(
    plain: DeviceRun, per_s: dict[int, float], wanted: list[float]
) -> None:
    copy = plain.roof("cold").copy_byte_per_s
    assert copy is not None
    run = with_cached(plain, {byte: rate * copy for byte, rate in per_s.items()})
    found = [roof for roof in roofs.of(run, run.frame, "float16", "cold") if roof.kind == "cached"]
    assert [(roof.bandwidth or 0) / copy for roof in found] == pytest.approx(wanted)


def test_a_peak_without_a_bandwidth_is_a_flat_roof(plain: DeviceRun) -> None:
    """As imported rows have it, among which nothing was streamed."""
    flat = {how: dataclasses.replace(c, bandwidth_byte_per_s={}) for how, c in plain.ceilings.items()}
    figure = drawn(dataclasses.replace(plain, measured_ceilings=flat, datasheet=None))
    (roof,) = lines(figure, "_roof")
    assert len(set(roof.get_ydata())) == 1
    assert "Above" not in said(figure), "below an unknown slope nothing is known to be above it"
    assert not lines(figure, "_ridge") and "read to write bandwidth" not in legend(figure)


# --- points -----------------------------------------------------------------------------------------


def test_points_above_a_roof_are_shown_and_counted(plain: DeviceRun) -> None:
    chance = random.Random(SEED)
    roof = plain.roof("cold")
    peak, copy = roof.peak("matrix", "float16"), roof.copy_byte_per_s
    assert peak and copy and plain.datasheet
    points = plain.frame["sweep"] == "gemm/x"
    at = np.minimum(peak, plain.frame["intensity"] * copy)
    share = np.array([chance.choice([0.5, 0.999, 1.001, 1.2, 30.0]) for _ in range(len(plain.frame))])
    share[np.flatnonzero(points)[0]] = 30.0
    rows = plain.frame[points].assign(flop_per_s=(at * share)[points])
    rows["median_s"] = rows["flop"] / rows["flop_per_s"]
    figure = drawn(with_frame(plain, rows))
    over = int((share[points] > 1).sum())
    assert f"Above the measured roof: {over}, by 2900 %" in said(figure)
    sheet_peak = plain.datasheet.peak_flop_per_s("matrix", "float16")
    bandwidth = plain.datasheet.bandwidth_byte_per_s
    assert sheet_peak and bandwidth
    stated = np.minimum(sheet_peak, rows["intensity"] * bandwidth)
    over = int((rows["flop_per_s"] > stated).sum())
    assert f"Above the datasheet roof: {over}, by" in said(figure)
    shown = [y for line in lines(figure, "_measured") for y in line.get_ydata()]
    factor = 1e-12 if figure.axes[0].get_ylabel() == "TFLOP/s" else 1e-9
    assert sorted(shown) == pytest.approx(sorted(rows["flop_per_s"] * factor))
    low, high = figure.axes[0].get_ylim()
    assert low < min(shown) and max(shown) < high


def test_the_farthest_point_is_that_from_the_drawn_roof_which_has_no_launch(plain: DeviceRun) -> None:
    points = plain.frame[(plain.frame["dtype"] == "float16") & plain.frame["flop_per_s"].notna()]
    share = roofs.above(plain, points, "cold")["measured"]
    assert share.idxmin() != points["of_roof"].idxmin(), "else this test shows nothing"
    far = points.loc[share.idxmin()]
    of_roof = share_text(share.min(), 0 if share.min() > 0.01 else 2)
    words = f"B: farthest below its roof, {row_name(far)}, {of_roof} of the roof"
    assert f"{words} ({share_text(far['of_roof'])} with the launch counted)" in said(drawn(plain))


def test_operators_have_marks_of_their_own_and_one_alone_shows_its_implementations(plain: DeviceRun) -> None:
    rows = plain.frame[plain.frame["sweep"] == "gemm/x"]
    names = np.where(rows["implementation"] == "cublas", "linear", "softmax")
    figure = drawn(with_frame(plain, rows.assign(operator=names)))
    looks = {(line.get_color(), line.get_marker()) for line in lines(figure, "_measured")}
    assert looks == {(look.color, look.marker) for look in map(style.of_operator, ("linear", "softmax"))}
    assert legend(figure)[:2] == ["linear", "softmax"] and legend(drawn(plain))[:2] == ["cublas", "triton"]


def test_each_type_is_held_against_its_own_peak(plain: DeviceRun) -> None:
    rows = plain.frame[plain.frame["dtype"].isin(["float16", "float64"]) & (plain.frame["flop"] > 0)]
    share = roofs.above(plain, rows, "cold")["measured"]
    for dtype in ("float16", "float64"):
        peak = plain.roof("cold").peak("matrix", dtype)
        here = rows["dtype"] == dtype
        large = here & (rows["m"] == 4096)
        assert peak and share[large].to_numpy() == pytest.approx(rows["flop_per_s"][large] / peak)


def test_predictions_are_bars_where_there_is_room(plain: DeviceRun) -> None:
    rows = plain.frame.copy()
    here = (rows["sweep"] == "gemm/x") & (rows["implementation"] == "cublas")
    rows.loc[here, "structured_s"] = rows["predicted_s"] * 2
    figure = drawn(with_frame(plain, rows))
    (bars,) = lines(figure, "_expected")
    some = rows[(rows["dtype"] == "float16") & rows["flop_per_s"].notna()]
    best = some["structured_s"].fillna(some["predicted_s"])
    assert bars.get_ydata() == pytest.approx(some["flop"] / best * 1e-12)
    assert bars.get_xdata() == pytest.approx(some["intensity"])
    assert "prediction of a point" in legend(figure)
    copies = -(-(roofline.MOST_PREDICTED + 1) // len(rows))
    many = with_frame(plain, rows.loc[np.tile(rows.index, copies * 8)].reset_index(drop=True))
    assert not lines(drawn(many), "_expected") and "prediction of a point" not in legend(drawn(many))


def test_the_caption_says_what_binds(plain: DeviceRun) -> None:
    rows = plain.frame[plain.frame["flop_per_s"].notna() & (plain.frame["dtype"] == "float16")]
    told = re.search(r"Bound by ([^.]*)\.", said(drawn(plain)))
    assert told
    found = {term: int(n) for term, n in (one.rsplit(" ", 1) for one in told[1].split(", "))}
    assert found == rows["bound_by"].value_counts().to_dict()


def test_thousands_of_points_are_a_picture_in_the_svg(plain: DeviceRun, tmp_path: Path) -> None:
    rows = plain.frame[(plain.frame["sweep"] == "gemm/x")]
    times = -(-(roofline.MOST_DRAWN + 1) // len(rows))
    many = with_frame(plain, rows.loc[np.tile(rows.index, times)].reset_index(drop=True))
    with style.look():
        pages = dict(roofline.draw(many))
        _, svg = pages["float16"].save(tmp_path / "many")
    found = lines(pages["float16"].figure, "_measured")
    assert sum(len(line.get_xdata()) for line in found) == len(many.frame) > roofline.MOST_DRAWN
    assert all(line.get_rasterized() for line in found)
    text = svg.read_text()
    assert text.count("<image") == 1 and text.count("<use") < 500
    few = lines(drawn(plain), "_measured")
    assert not any(line.get_rasterized() for line in few)


@pytest.mark.parametrize("of_all", [True, False])
def test_imported_points_are_crosses_and_named(plain: DeviceRun, of_all: bool) -> None:
    which = plain.frame["implementation"].eq("cublas") | of_all
    rows = plain.frame.assign(imported=which, source=np.where(which, "somebody 1.0", None))
    figure = drawn(with_frame(plain, rows))
    markers = {line.get_marker() for line in lines(figure, "_measured")}
    assert (markers == {IMPORTED}) if of_all else (IMPORTED in markers and len(markers) == 2)
    assert "cublas (imported)" in legend(figure) and ("triton (imported)" in legend(figure)) is of_all
    assert "Imported times have no interval" in said(figure) and "imported: somebody 1.0" in said(figure)
    roofs = "roofs: of the imported rows, datasheet" if of_all else "roofs: measured, datasheet"
    assert roofs in legend(figure)
    assert "mported" not in said(drawn(plain)) and "roofs: measured, datasheet" in legend(drawn(plain))
