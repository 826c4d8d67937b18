"""The stacks of a layer's time: one for each size, of one height, and nothing where classes are unknown."""

from pathlib import Path
from typing import Any

import pytest

from bench.judge.frame import DeviceRun
from bench.store.schema import Measurement
from kernels.layer.problem import Layer
from plots.base import style
from plots.base.plot_spec import Section
from plots.figures import shares
from plots.figures.every_figure import pages
from tests.plots.drawn import loaded
from tests.plots.synthetic import H100, ceilings, row

DECLARED = {"layer/x": {"title": "Shares", "plot": [{"kind": "shares", "x": "width"}]}}
SECTION = Section("width", kind="shares")
CEILINGS = list(ceilings(H100))


def layer(width: int, parts: tuple[float, float, float] | None, **given: Any) -> Measurement:
    sizes = {"kind": "mlp", "direction": "step", "batch": 8, "dtype": "float32"}
    problem = Layer.model_validate(sizes | {"width": width} | given)
    seconds = dict(zip(shares.CLASSES, parts, strict=True)) | {"parts_by": "p"} if parts else {}
    return row(H100, "layer/x", problem, "eager", **seconds)


def drawn(run: DeviceRun) -> list[Any]:
    with style.look():
        of_sweep = run.frame[run.frame["sweep"] == "layer/x"]
        return [axes for page in shares.draw(run, of_sweep, SECTION) for axes in page.figure.axes]


def test_stacks_are_shares_from_the_products_up(tmp_path: Path) -> None:
    (axes,) = drawn(
        loaded(tmp_path, [*CEILINGS, layer(256, (3e-3, 0.0, 1e-3)), layer(128, (1e-3, 2e-3, 1e-3))], DECLARED)
    )
    assert [label.get_text() for label in axes.get_xticklabels()] == ["128", "256"]
    heights = [[bar.get_height() for bar in bars] for bars in axes.containers]
    assert heights == [pytest.approx(each) for each in ([0.25, 0.75], [0.5, 0.0], [0.25, 0.25])]
    tops = [bar.get_y() + bar.get_height() for bar in axes.containers[-1]]
    assert tops == pytest.approx([1.0, 1.0])
    assert {"25%", "75%"} <= {text.get_text() for text in axes.texts}


def test_each_way_of_running_has_a_panel_and_what_is_not_divided_none(tmp_path: Path) -> None:
    given = [layer(128, (1e-3, 2e-3, 1e-3), dtype=dtype) for dtype in ("float32", "tf32")]
    run = loaded(tmp_path, [*CEILINGS, *given, layer(256, None), layer(512, None, depth=2)], DECLARED)
    assert [len(axes.containers[0]) for axes in drawn(run)] == [1, 1]
    with style.look():
        assert any(stem.startswith("layer/x-shares") for stem, _ in pages(run, DECLARED))


def test_without_any_class_there_is_no_figure(tmp_path: Path) -> None:
    run = loaded(tmp_path, [*CEILINGS, layer(128, None), layer(256, None)], DECLARED)
    assert not drawn(run)
    with style.look():
        assert not any("-shares" in stem for stem, _ in pages(run, DECLARED))
