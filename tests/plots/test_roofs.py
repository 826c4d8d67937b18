"""What stands over the points of a roofline: stated, measured, and a cache's; and the points above them."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from bench.judge.frame import DeviceRun
from bench.model.ceiling import Ceiling
from kernels.gemm.problem import Gemm
from plots.base import style
from plots.base.measured_points import IMPORTED
from plots.base.page import Captioned
from plots.figures import roofline
from tests.plots.drawn import legend, lines, loaded, opened, points, said
from tests.plots.synthetic import CPU, H100, ceilings, row, small, with_frame

SIZES = (64, 128, 256, 512, 1024, 2048, 4096)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> DeviceRun:
    problems = [Gemm(m=m, n=m, k=m, dtype="float16") for m in SIZES]
    rows = [row(H100, "gemm/x", problem, name) for problem in problems for name in ("cublas", "triton")]
    run = loaded(tmp_path_factory.mktemp("plain"), [*ceilings(H100), *rows])
    run.frame["structured_s"], run.frame["structured_limiter"] = np.nan, ""
    return with_cached(run, {})


def with_cached(run: DeviceRun, per_s: dict[int, float]) -> DeviceRun:
    """The run with these bandwidths by working set, and none else."""
    cached = {byte: Ceiling(rate, rate, rate, "") for byte, rate in sorted(per_s.items())}
    changed = {how: dataclasses.replace(one, cached=cached) for how, one in run.ceilings.items()}
    return dataclasses.replace(run, measured_ceilings=changed)


def drawn(run: DeviceRun) -> Captioned:
    return opened(roofline.draw(run))["float16"]


def tiled(run: DeviceRun, times: int) -> DeviceRun:
    """The run with so many copies of the rows of its sweep."""
    rows = run.frame[run.frame["sweep"] == "gemm/x"]
    return with_frame(run, rows.loc[np.tile(rows.index, times)].reset_index(drop=True))


def peak_and_copy(run: DeviceRun) -> tuple[float, float]:
    """(FLOP/s of products in float16, bytes/s of a copy) as this run measured them."""
    peak, copy = run.roof("cold").peak("matrix", "float16"), run.roof("cold").copy_byte_per_s
    assert peak and copy
    return peak, copy


def test_the_roofline_has_its_roofs_and_ridge(plain: DeviceRun) -> None:
    figure = drawn(plain)
    peak, copy = peak_and_copy(plain)
    (ridge,) = [r for r in lines(figure, "_ridge") if r.get_markersize() == 5]
    assert ridge.get_xydata()[0] == pytest.approx((peak / copy, peak * 1e-12))


def test_a_cache_roof_is_dashed_and_ends_at_the_peak(plain: DeviceRun) -> None:
    run = with_cached(plain, {2**22: 7e12, 2**24: 6.8e12, 2**28: 3.0e12})
    figure = drawn(run)
    (cache,) = lines(figure, "_cache")
    peak, _ = peak_and_copy(run)
    x, y = cache.get_xdata(), cache.get_ydata()
    assert y == pytest.approx(np.minimum(peak, np.asarray(x) * 7e12) * 1e-12)
    assert peak / 7e12 in [pytest.approx(one) for one in x], "the ridge is one of its points"
    solid, *_ = (line for line in lines(figure, "_roof") if line.get_color() == style.BLACK)
    assert cache.is_dashed() and not solid.is_dashed() and cache.get_linewidth() < solid.get_linewidth()
    assert any("7000 GB/s at best, a copy of 4 MiB" in text.get_text() for text in figure.axes[0].texts)
    assert "roof: copy inside a cache" in legend(figure)


def test_a_peak_without_a_bandwidth_is_a_flat_roof(plain: DeviceRun) -> None:
    """As imported rows have it, among which nothing was streamed."""
    flat = {how: dataclasses.replace(c, bandwidth_byte_per_s={}) for how, c in plain.ceilings.items()}
    figure = drawn(dataclasses.replace(plain, measured_ceilings=flat, datasheet=None))
    (roof,) = lines(figure, "_roof")
    assert len(set(roof.get_ydata())) == 1
    assert not lines(figure, "_ridge")


def test_a_roofline_needs_a_roof_and_five_points(tmp_path: Path) -> None:
    sizes = [Gemm(m=s, n=s, k=s, dtype="float32") for s in (64, 128)]
    half = Gemm(m=64, n=64, k=64, dtype="float16")
    run = loaded(tmp_path, [*ceilings(CPU), *(row(CPU, "gemm/x", each, "onednn") for each in (*sizes, half))])
    assert list(opened(roofline.draw(run))) == ["float32"]
    assert not opened(roofline.draw(loaded(tmp_path, [one for one in small() if one.operator != "gemm"])))


def test_warm_rows_have_a_roofline_of_their_own(tmp_path: Path) -> None:
    sizes = [Gemm(m=s, n=s, k=s, dtype="float32") for s in (64, 128, 256, 512, 1024)]
    warm = [row(CPU, "gemm/some", problem, "onednn", cache="warm") for problem in sizes]
    figures = opened(roofline.draw(loaded(tmp_path, [*small(), *warm])))
    assert list(figures) == ["float32", "float32-warm"]
    figure = figures["float32-warm"]
    assert len(points(figure, "_measured")) == len(warm) and "cold cache's" in said(figure)


# --- points -----------------------------------------------------------------------------------------


def test_thousands_of_points_are_a_picture_in_the_svg(plain: DeviceRun, tmp_path: Path) -> None:
    many = tiled(plain, 1 + roofline.MOST_DRAWN // (2 * len(SIZES)))
    with style.look():
        page = dict(roofline.draw(many))["float16"]
        _, svg = page.save(tmp_path / "many")
    assert len(points(page.figure, "_measured")) == len(many.frame) > roofline.MOST_DRAWN
    assert all(line.get_rasterized() for line in lines(page.figure, "_measured"))
    text = svg.read_text()
    assert text.count("<image") == 1 and text.count("<use") < 500
    assert not any(line.get_rasterized() for line in lines(drawn(plain), "_measured"))


@pytest.mark.parametrize("of_all", [True, False])
def test_imported_points_are_crosses_and_named(plain: DeviceRun, of_all: bool) -> None:
    which = plain.frame["implementation"].eq("cublas") | of_all
    rows = plain.frame.assign(imported=which, source=np.where(which, "somebody 1.0", None))
    figure = drawn(with_frame(plain, rows))
    markers = {line.get_marker() for line in lines(figure, "_measured")}
    assert (markers == {IMPORTED}) if of_all else (IMPORTED in markers and len(markers) == 2)
    named = {text.get_text() for text in figure.axes[0].texts}
    assert "cublas (imported)" in named and ("triton (imported)" in named) is of_all
    assert "Imported times have no interval" in said(figure) and "imported: somebody 1.0" in said(figure)
    whose = "of the imported rows" if of_all else "measured"
    assert f"roof: {whose}" in legend(figure)
    assert "mported" not in said(drawn(plain))
