"""Generations: every case at its speed-up, what datasheets promise beside it, a device always the same."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes

from bench.device.datasheet import find_datasheet
from bench.judge.frame import DeviceRun
from bench.judge.read_runs import load
from bench.judge.speedup import Gain, compared, gains, speedups
from bench.model.bound import bound_text
from bench.spec import parameters_text
from bench.store.schema import Measurement
from kernels.gemm.problem import Gemm
from plots.base.page import Captioned
from plots.figures import generations
from tests.drawing import run_seed
from tests.plots.drawn import loaded, opened, titled
from tests.plots.synthetic import CPU, H100, H200, Machine, ceilings, row

SIZES = (16, 64, 256, 1024, 4096, 8192)
PUBLIC = Path(__file__).parents[2] / "results" / "reference" / "public"
PROBLEMS = [Gemm(m=m, n=n, k=4160, dtype="float16") for m, n in itertools.product(SIZES, SIZES)]


def scored(folder: Path, rows: list[Measurement]) -> DeviceRun:
    run = loaded(folder, rows)
    # Of rows in doubt: tests/bench/test_speedup.py.
    run.frame["suspect"], run.frame["blamed"] = False, False
    return run


def measured(machine: Machine, problems: list[Gemm] = PROBLEMS, **facts: Any) -> list[Measurement]:
    library = "cublas" if machine is not CPU else "onednn"
    found = [row(machine, "gemm/some", one, library) for one in problems]
    return [dataclasses.replace(one, **facts) for one in [*ceilings(machine), *found]]


def figures_of(runs: list[DeviceRun]) -> dict[str, Captioned]:
    """The figures of these runs over the first one's device, all of which have cases in common."""
    apart: list[str] = []
    drawn = opened(generations.draw(runs, runs[0].device, apart.append))
    assert apart == []
    return drawn


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[DeviceRun]:
    folder = tmp_path_factory.mktemp("generations")
    chance = np.random.default_rng(run_seed())
    smallest = parameters_text(Gemm(m=16, n=16, k=4160, dtype="float16").parameters())
    some = measured(H200)
    for place, one in enumerate(some):
        if one.sweep == "gemm/some":
            # Else the made-up devices would differ by one number alone, and every spread be nothing;
            # and one far from all others, for which few cases make room.
            times = chance.lognormal(0, 0.3) * (40 if one.parameters == smallest else 1)
            median_s = (one.median_s or 0.0) * times
            some[place] = dataclasses.replace(one, median_s=median_s, low_s=None, high_s=None)
    return [scored(folder, measured(H100)), scored(folder, some)]


@pytest.fixture(scope="module")
def figures(runs: list[DeviceRun]) -> dict[str, Captioned]:
    return figures_of(runs)


def ratios(runs: list[DeviceRun], bound_by: str) -> list[float]:
    """The speed-ups, sorted, of the 16-bit problems that this bounds on the base."""
    before, after = (
        run.frame[(run.frame["operator"] == "gemm") & (run.frame["dtype"] == "float16")] for run in runs
    )
    pairs = before[before["bound_by"] == bound_by].merge(after, on=["parameters", "implementation"])
    cublas = pairs[pairs["implementation"] == "cublas"]
    return sorted(cublas["median_s_x"] / cublas["median_s_y"])


PROMISED: Mapping[str, list[float]] = {"memory": [4.8 / 3.352], "compute": [1.0], "launch": []}


@pytest.mark.parametrize("bound_by", PROMISED)
def test_medians_with_the_middle_80_and_the_datasheets_promise(
    runs: list[DeviceRun], figures: dict[str, Captioned], bound_by: str
) -> None:
    wanted = ratios(runs, bound_by)
    axes = titled(figures["generations"], f"gemm, float16, bound by {bound_by}")
    assert len(wanted) >= 3 and medians(axes) == pytest.approx([np.median(wanted)])
    assert ends(axes, "_spread") == [pytest.approx(np.quantile(wanted, (0.1, 0.9)))]
    assert [left for left, _ in ends(axes, "_stated")] == pytest.approx(PROMISED[bound_by], rel=1e-3)
    assert axes.get_title("left").endswith(f", n = {len(wanted)}")
    assert [text.get_text() for text in axes.texts] == [f"{np.median(wanted):.2f}"]
    assert axes.get_xlim()[0] == 0 and axes.get_xlim()[1] > max(PROMISED[bound_by], default=1.0)


def medians(axes: Axes) -> list[float]:
    """How long the bars are, from the top down."""
    return [bar.get_width() for bar in sorted(axes.patches, key=lambda bar: bar.get_y())]  # type: ignore[attr-defined]


def ends(axes: Axes, label: str) -> list[tuple[float, float]]:
    """From where to where the lines of this label lead, from the top down."""
    of = [line for each in axes.collections if each.get_label() == label for line in each.get_segments()]  # type: ignore[attr-defined]
    return [(low[0], high[0]) for low, high in sorted(of, key=lambda line: line[:, 1].mean())]


def test_figure_and_docs_say_the_same_of_public_gpus() -> None:
    """The medians of A100, H100 and B200: drawn, and in the caption of docs/predictions.md."""
    folders = [PUBLIC / f"nvidia-{name}" for name in ("a100-sxm4-80gb", "h100-80gb-hbm3", "b200")]
    of = [run for folder in folders for run in load([folder], find_datasheet)]
    sheets, base = {run.device: run.datasheet for run in of}, of[0].device
    gained = gains(dict(speedups(pd.concat(map(compared, of)), base)), base, sheets)
    caption = Path("docs/predictions.md").read_text().split("figures/generations.png)")[1].split("![")[0]
    blocks: dict[str, list[Gain]] = defaultdict(list)
    for gain in gained:
        if (gain.operator, gain.dtype) == ("gemm", "bfloat16"):
            blocks[gain.bound_by].append(gain)
    overview = figures_of(of)["generations"]
    assert len(blocks) == len(overview.axes) == 4
    for bound_by, block in blocks.items():
        axes = titled(overview, f"gemm, bfloat16, {bound_text(bound_by)}")
        assert medians(axes) == [each.median for each in block]
        promised = [each.stated for each in block if each.stated]
        assert [left for left, _ in ends(axes, "_stated")] == promised
        counts = " to ".join(map(str, sorted({each.cases for each in block})))
        assert axes.get_title("left").endswith(f", n = {counts}")
        assert all(f"{each.median:.2f}" in caption for each in block)
