"""What holds for every figure: its words do not collide, its panels have points, and its files open."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from bench.store.schema import Measurement
from kernels.gemm.problem import Gemm
from plots.base import style
from plots.base.page import Page
from plots.figures import every_figure, generations
from tests.drawing import drawn
from tests.plots.drawn import assert_readable, loaded
from tests.plots.synthetic import H100, H200, Machine, ceilings, quantized, row

PLOTS: dict[str, dict[str, str]] = {
    "gemm/curve": {"x": "k"},
    "gemm/rate": {"x": "k", "y": "rate"},
    "gemm/tiles": {"kind": "quantization", "x": "n"},
}
STEMS = [
    *("roofline-float16", "ceilings/stream-rate", "gemm/curve-duration", "gemm/rate-rate"),
    *("gemm/tiles-quantization", "compared/generations"),
]


def rows(machine: Machine) -> Iterator[Measurement]:
    """Rows of the kinds of figures that compare devices, too."""
    aligned = [Gemm(m=m, n=4096, k=k, dtype="float16") for m in (1024, 4096) for k in range(4088, 4097)]
    for sweep, problem, name in itertools.product(("gemm/curve", "gemm/rate"), aligned, machine.libraries):
        seconds = (1.25 if problem.k % 8 else 1.0) * 3e-6 * problem.m / 16
        yield row(machine, sweep, problem, name, median_s=seconds)
    staircase = [Gemm(m=27648, n=n, k=4096, dtype="float16", layout="NT") for n in range(112, 1025, 16)]
    yield from quantized(machine, "gemm/tiles", iter(staircase))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Page]:
    folder = tmp_path_factory.mktemp("every")
    sweeps = {sweep: {"title": "Made", "plot": [plot]} for sweep, plot in PLOTS.items()}
    told: dict[str, Any] = {"sm_clock_hz": 1.98e9}
    first, second = (
        loaded(folder, [dataclasses.replace(one, **told) for one in given], declared)
        for given, declared in (
            ((*ceilings(H100), *rows(H100)), sweeps),
            ((*ceilings(H200), *rows(H200)), {}),
        )
    )
    with style.look():
        alone = dict(every_figure.pages(first))
        together = generations.draw([first, second], first.device, print)
        return alone | {f"compared/{stem}": page for stem, page in together}


def boxes(figure: Figure) -> list[tuple[str, Any]]:
    """What every text around the axes, every panel with its labels, and the legend cover."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    texts = [(text.get_text(), text.get_window_extent(renderer)) for text in figure.texts]
    panels = [(f"panel {i}", axes.get_tightbbox(renderer)) for i, axes in enumerate(figure.axes)]
    return [*texts, *panels, *(("legend", each.get_window_extent(renderer)) for each in figure.legends)]


@pytest.mark.parametrize("stem", STEMS)
def test_nothing_collides_or_leaves_the_page(pages: dict[str, Page], stem: str) -> None:
    figure = pages[stem].figure
    placed = boxes(figure)
    width, height = figure.get_size_inches() * figure.dpi
    for name, box in placed:
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, name
    for (name, box), (other, against) in itertools.combinations(placed, 2):
        if not (name.startswith("panel") and other.startswith("panel")):
            assert not box.overlaps(against), (name, other)


@pytest.mark.parametrize("stem", STEMS)
def test_it_says_what_ran_and_has_points_and_words_on_its_axes(pages: dict[str, Page], stem: str) -> None:
    figure = pages[stem].figure
    assert_readable(figure, stem)
    facts = "".join(text.get_text() for text in figure.texts if text.get_color() == "#444444")
    device = (
        [] if stem == "compared/generations" else ["NVIDIA H100 80GB HBM3"]
    )  # which names it in its title
    for fact in (*device, "driver 570.86", "torch 2.13.0", "commit 4f2a91c", "2026-11-21"):
        assert fact in facts.replace(style.NO_BREAK, " "), fact


@pytest.mark.parametrize("stem", drawn(STEMS, 2, "figures that are saved"))
def test_its_files_carry_the_whole_caption(pages: dict[str, Page], stem: str, tmp_path: Path) -> None:
    page = pages[stem]
    with style.look():
        png, svg = page.save(tmp_path / "x")
    image = Image.open(png)
    image.load()
    assert image.info["Description"] == page.figure.caption
    assert page.figure.caption.split(".")[0].split("<")[0] in svg.read_text("utf-8")
