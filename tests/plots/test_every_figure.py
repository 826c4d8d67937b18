"""What holds for every figure: its words do not collide, its panels have points, and its files open."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from bench.model.step_memory import TrainingStep
from bench.store.schema import Measurement
from kernels.gemm.problem import Gemm
from kernels.layer.problem import Layer
from kernels.training.problem import Training
from plots.base import style
from plots.base.page import Page
from plots.figures import compared, every_figure, shares
from tests.plots.drawn import assert_readable, legend, lines, loaded, points, said
from tests.plots.synthetic import H100, H200, NO_TIME, Machine, ceilings, paired, quantized, row

SAYS = "A statement of the documents that takes more than one line of a narrow figure to say in words"
NEAREST = {"of": {"k": "!%8"}, "to": {"k": "%8"}, "pair": "nearest k", "per": "flop"}
CLAIM = {"says": SAYS, "rules": [3, 7, 13], "expect": "above 1.03", "ratio": NEAREST}
CLAIMS = [{"id": f"MM-01{letter}"} | CLAIM for letter in "abcdefghijkl"]
PLOTS: dict[str, dict[str, str]] = {
    "gemm/curve": {"x": "k"},
    "gemm/rate": {"x": "k", "y": "rate"},
    "gemm/tiles": {"kind": "quantization", "x": "n"},
    "gemm/map": {"kind": "heatmap", "x": "n", "y": "k"},
    "gemm/types": {"kind": "accuracy", "x": "m"},
    "layer/parts": {"kind": "shares", "x": "width"},
    "layer/undivided": {"kind": "shares", "x": "width"},
    "training/depth": {"kind": "memory", "x": "layers"},
}
OF_SWEEPS = {
    "gemm/curve": "duration",
    "gemm/rate": "rate",
    **{sweep: plot["kind"] for sweep, plot in PLOTS.items() if "kind" in plot},
    "layer/undivided": "duration",
}
STEMS = [
    *("roofline-float16", "scorecard", "distribution", "trace", "duel-triton", "ceilings/stream-rate"),
    *(f"{sweep}-{kind}" for sweep, kind in OF_SWEEPS.items()),
    *("compared/scorecard", "compared/distribution", "compared/generations"),
    *("compared/generations-gemm-float16", "compared/generations-stream-float32"),
]


def steps() -> Iterator[tuple[TrainingStep, Measurement]]:
    """Training steps that hold 1 % more than is predicted, with checkpoints and without."""
    for layers, segments in ((4, 1), (16, 1), (64, 1), (4, 2), (16, 4), (64, 8)):
        sizes = {"layers": layers, "segments": segments, "width": 64, "batch": 1024}
        problem = Training.model_validate({**sizes, "optimizer": "none", "dtype": "float32"})
        step = TrainingStep(**{field.name: getattr(problem, field.name) for field in fields(TrainingStep)})
        counted = round(1.01 * step.peak_byte("eager"))
        yield step, row(H100, "training/depth", problem, "eager", peak_byte=counted)


def layer(sweep: str, width: int, parts: tuple[float, ...] = (), **given: Any) -> Measurement:
    sizes = {"kind": "mlp", "direction": "step", "batch": 8, "dtype": "float32", "width": width}
    seconds = dict(zip(shares.CLASSES, parts, strict=True)) | {"parts_by": "p"} if parts else {}
    return row(H100, sweep, Layer.model_validate(sizes | given), "eager", **seconds)


def typed(m: int, dtype: str, error: float, name: str = "cublas", **facts: Any) -> Measurement:
    sizes = {"m": m, "n": m, "k": m, "layout": "TN", "dtype": dtype, "data": "normal"}
    return row(H100, "gemm/types", Gemm.model_validate(sizes), name, relative_error=error, **facts)


ERRORS = {"float32": 4e-7, "bfloat16": 3e-3, "float8_e4m3": 2e-2}
PARTS = {"float32": (3e-3, 0.0, 1e-3), "tf32": (1e-3, 2e-3, 1e-3)}


def rows(machine: Machine) -> Iterator[Measurement]:
    """Rows of the kinds of figures that compare devices, too."""
    aligned = [Gemm(m=m, n=4096, k=k, dtype="float16") for m in (1024, 4096) for k in range(4088, 4097)]
    for sweep, problem, name in itertools.product(("gemm/curve", "gemm/rate"), aligned, machine.libraries):
        seconds = (1.25 if problem.k % 8 else 1.0) * 3e-6 * problem.m / 16
        yield row(machine, sweep, problem, name, median_s=seconds)
    staircase = [Gemm(m=27648, n=n, k=4096, dtype="float16", layout="NT") for n in range(112, 1025, 16)]
    yield from quantized(machine, "gemm/tiles", iter(staircase))
    grid = [Gemm(m=4096, n=n, k=k, dtype="float16") for n in (512, 1024, 2048) for k in range(4088, 4097)]
    yield from paired(machine, "gemm/map", iter(grid), {"triton": 0.9})


def rows_by_kind() -> Iterator[Measurement]:
    """Rows of figures that a sweep asks for by kind; some have nothing to show there."""
    for name, m, (dtype, error) in itertools.product(("cublas", "triton"), (512, 1024), ERRORS.items()):
        yield typed(m, dtype, error, name)
    yield typed(512, "float16", 1e-4, **NO_TIME)
    yield typed(512, "float64", 0.0)
    for (dtype, parts), width in itertools.product(PARTS.items(), (128, 256)):
        yield layer("layer/parts", width, parts, dtype=dtype)
    yield layer("layer/parts", 512)
    yield from (layer("layer/undivided", width) for width in (128, 256))
    yield from (one for _, one in steps())


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Page]:
    folder = tmp_path_factory.mktemp("every")
    sweeps = {sweep: {"title": "Made", "claims": CLAIMS, "plot": [plot]} for sweep, plot in PLOTS.items()}
    told: dict[str, Any] = {"sm_clock_hz": 1.98e9}
    first, second = (
        loaded(folder, [dataclasses.replace(one, **told) for one in given], declared)
        for given, declared in (
            ((*ceilings(H100), *rows(H100), *rows_by_kind()), sweeps),
            ((*ceilings(H200), *rows(H200)), {}),
        )
    )
    with style.look(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(every_figure, "MANY", 0)
        alone = dict(every_figure.pages(first, sweeps))
        together = compared.draw([first, second], first.device, print)
        return alone | {f"compared/{stem}": page for stem, page in together}


def test_every_kind_is_there(pages: dict[str, Page]) -> None:
    assert {*STEMS} <= {*pages}


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
    for fact in ("NVIDIA H100 80GB HBM3", "driver 570.86", "torch 2.13.0", "commit 4f2a91c", "2026-11-21"):
        assert fact in facts.replace(style.NO_BREAK, " "), fact


@pytest.mark.parametrize("stem", STEMS)
def test_it_can_be_sent_to_another_process_and_its_files_carry_the_whole_caption(
    pages: dict[str, Page], stem: str, tmp_path: Path
) -> None:
    page = pickle.loads(pickle.dumps(pages[stem]))
    assert isinstance(page, Page)
    with style.look():
        png, svg = page.save(tmp_path / "x")
    image = Image.open(png)
    image.load()
    assert image.info["Description"] == page.figure.caption
    assert page.figure.caption.split(".")[0].split("<")[0] in svg.read_text("utf-8")


@pytest.mark.parametrize("stem", [f"{sweep}-{kind}" for sweep, kind in OF_SWEEPS.items()])
def test_below_stands_what_the_claims_say_the_first_five_in_whole(pages: dict[str, Page], stem: str) -> None:
    decided = said(pages[stem].figure)
    if stem in ("gemm/curve-duration", "gemm/rate-rate", "gemm/map-heatmap"):
        assert decided.count(SAYS) == 5 and "7 further claims: 7 " in decided
        assert "`python -m bench claims` lists them." in decided
    elif stem == "gemm/tiles-quantization":  # their k is one, so there are no pairs
        assert "TOO FEW rows to decide: MM-01a 0 of " in decided and decided.count("TOO FEW") == 1
    else:
        assert "MM-01l" in decided


# --- figures that a sweep asks for by kind ----------------------------------------------------------


def test_a_mark_of_each_type_stands_at_its_error_and_its_time(pages: dict[str, Page]) -> None:
    """A page for each implementation, a panel for each size; no mark without a time or an error."""
    for name, stem in (("cublas", "gemm/types-accuracy"), ("triton", "gemm/types-accuracy-2")):
        for m, axes in zip((512, 1024), pages[stem].figure.axes, strict=True):
            wanted = [(error, typed(m, dtype, error, name).median_s) for dtype, error in ERRORS.items()]
            assert points(axes, "_measured") == sorted(wanted)
            assert axes.get_title("left") == f"m={m}" and axes.get_xscale() == axes.get_yscale() == "log"
            assert axes.get_xlabel() == "largest error / largest result"
            assert len({line.get_marker() for line in lines(axes, "_measured")}) == len(ERRORS)
    assert legend(pages["gemm/types-accuracy"].figure) == list(ERRORS)  # the smallest error first


def test_stacks_are_shares_from_the_products_up(pages: dict[str, Page]) -> None:
    """A panel for each way of running, and no row without classes."""
    figure = pages["layer/parts-shares"].figure
    assert [axes.get_title("left") for axes in figure.axes] == list(PARTS)
    for axes, parts in zip(figure.axes, PARTS.values(), strict=True):
        for place, (bars, part) in enumerate(zip(axes.containers, parts, strict=True)):
            share, below = part / sum(parts), sum(parts[:place]) / sum(parts)
            assert [(bar.get_height(), bar.get_y()) for bar in bars] == [pytest.approx((share, below))] * 2
        assert [label.get_text() for label in axes.get_xticklabels()] == ["128", "256"]
        assert f"{parts[0] / sum(parts):.0%}" in {text.get_text() for text in axes.texts}
    assert "layer/undivided-shares" not in pages


def test_points_stand_at_what_was_counted_and_lines_at_what_is_predicted(pages: dict[str, Page]) -> None:
    figure = pages["training/depth-memory"].figure
    wanted = sorted((step.layers, step.peak_byte("eager") / 1e6) for step, _ in steps())
    assert points(figure, "_predicted") == wanted
    counted = [(layers, pytest.approx(1.01 * predicted, rel=1e-4)) for layers, predicted in wanted]
    assert points(figure, "_measured") == counted
    assert "at most 0.99 % off" in figure.caption
    assert legend(figure) == ["without checkpoints", "with checkpoints", "predicted"]
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("layers", "memory, MB")
