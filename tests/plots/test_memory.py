"""Memory of training steps over a parameter: points where it was counted, the prediction beside them."""

from pathlib import Path

import numpy as np

from bench.device.datasheet import find_datasheet
from bench.judge.frame import load
from bench.model.step_memory import TrainingStep
from bench.store.parquet import write
from kernels.training.problem import Training
from plots.base import style
from plots.figures.every_figure import pages
from tests.plots.synthetic import CPU, ceilings, row


def step(layers: int, segments: int) -> Training:
    given = {"layers": layers, "segments": segments, "width": 64, "batch": 1024}
    return Training.model_validate({**given, "optimizer": "none", "dtype": "float32"})


def predicted(problem: Training) -> int:
    return TrainingStep(
        **{field: getattr(problem, field) for field in TrainingStep.__dataclass_fields__}
    ).peak_byte("eager")


def test_points_stand_at_what_was_counted_and_lines_at_what_is_predicted(tmp_path: Path) -> None:
    problems = [
        step(n, s) for n, s in ((4, 1), (16, 1), (64, 1), (256, 1), (4, 2), (16, 4), (64, 8), (256, 16))
    ]
    rows = [
        row(CPU, "training/x", each, "eager", peak_byte=round(1.01 * predicted(each))) for each in problems
    ]
    declared = {"training/x": {"title": "Chains", "plot": [{"kind": "memory", "x": "layers"}]}}
    (run,) = load([write(tmp_path / "run.parquet", [*ceilings(CPU), *rows], declared)], find_datasheet)
    with style.look():
        drawn = {stem: page for stem, page in pages(run, declared) if stem.startswith("training/x")}
    (page,) = drawn.values()
    (axes,) = page.figure.axes
    points = [line for line in axes.lines if line.get_label() == "_measured"]
    lines = [line for line in axes.lines if line.get_label() == "_predicted"]
    assert len(points) == len(lines) == 2
    for point, line in zip(points, lines, strict=True):
        assert list(np.ravel(point.get_xdata())) == [4, 16, 64, 256]
        ratio = np.ravel(point.get_ydata()) / np.ravel(line.get_ydata())
        assert np.allclose(ratio, 1.01, atol=1e-4)
    assert "at most 0.99 % off" in page.figure.caption
