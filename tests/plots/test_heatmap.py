"""Measured over predicted in cells: the median of the cell's cases, the same colour for the same number."""

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from bench.judge.frame import DeviceRun
from bench.store.schema import Measurement
from kernels.gemm.problem import Gemm
from plots.base.page import Captioned
from plots.base.plot_spec import Section, sections
from plots.figures import heatmap
from plots.figures.every_figure import pages
from tests.drawing import run_seed
from tests.plots import drawn as reading
from tests.plots.drawn import described, legend, loaded, opened, said
from tests.plots.synthetic import H100, NO_TIME, ceilings, only, row, with_frame

SEED = run_seed()
MAP = Section("k", kind="heatmap", y="m")


def run_of(folder: Path, rows: list[Measurement]) -> DeviceRun:
    run = loaded(folder, [*ceilings(H100), *rows])
    run.frame["structured_s"], run.frame["structured_limiter"] = np.nan, ""
    return run


def swept(run: DeviceRun) -> pd.DataFrame:
    return run.frame[run.frame["sweep"] == "gemm/x"]


def drawn(run: DeviceRun, section: Section = MAP) -> list[Captioned]:
    return reading.figures(heatmap.draw(run, swept(run), section))


def cells(figure: Captioned, panel: int = 0) -> np.ma.MaskedArray[Any, Any]:
    (mesh,) = [c for c in figure.axes[panel].collections if c.get_label() == "_cells"]
    return np.ma.asarray(mesh.get_array())


def empty(figure: Captioned) -> list[tuple[int, int]]:
    """(row, column) of each cell without a number."""
    return [(int(i), int(j)) for i, j in np.argwhere(np.ma.getmaskarray(cells(figure)))]


def labels(figure: Captioned) -> tuple[list[str], list[str]]:
    """Ticks of both axes of the first panel."""
    axes = figure.axes[0]
    across, up = axes.get_xticklabels(), axes.get_yticklabels()
    return [tick.get_text() for tick in across], [tick.get_text() for tick in up]


def texts(sizes: Sequence[int]) -> list[str]:
    return [str(size) for size in sizes]


def grid(
    ms: Sequence[int], ks: Sequence[int] = (512, 1024), ns: Sequence[int] = (512,), name: str = "cublas"
) -> list[Measurement]:
    problems = [Gemm(m=m, n=n, k=k, dtype="float16") for m in ms for k in ks for n in ns]
    return [row(H100, "gemm/x", problem, name) for problem in problems]


def test_a_cell_is_the_median_of_measured_over_predicted(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    ms, ks, ns = (256, 512, 1024), (512, 2048, 4096, 8192), (128, 512, 1024)
    run = run_of(tmp_path, grid(ms, ks, ns))
    rows = run.frame
    rows["median_s"] = rows["predicted_s"] * [2 ** chance.uniform(-2, 2) for _ in range(len(rows))]
    some = [chance.random() < 0.5 for _ in range(len(rows))]
    rows["structured_s"] = np.where(some, rows["predicted_s"] * 1.3, np.nan)
    (figure,) = drawn(run)
    best = rows["structured_s"].fillna(rows["predicted_s"])
    here = rows.assign(ratio=rows["median_s"] / best)[rows["sweep"] == "gemm/x"]
    wanted = here.pivot_table("ratio", "m", "k", aggfunc="median")
    assert cells(figure).filled(np.nan) == pytest.approx(np.log2(wanted.to_numpy()))
    for text in figure.axes[0].texts:
        column, line = text.get_position()
        assert float(text.get_text()) == pytest.approx(wanted.iloc[int(line), int(column)], abs=0.006)
    (mesh,) = figure.axes[0].collections
    assert (mesh.norm.vmin, mesh.norm.vmax) == (-1.0, 1.0), "one colour for one number in every figure"
    assert labels(figure) == (texts(ks), texts(ms)) and ", 3 to 3 cases a cell" in said(figure)


STATUSES = ("skipped", "unsupported", "out_of_memory", "timeout", "crashed")


def test_cells_without_a_time_are_hatched_by_their_reason(tmp_path: Path) -> None:
    rows = grid((64, 128, 256, 512, 1024, 2048))
    lost = dict(zip((0, 3, 4, 7, 8), STATUSES, strict=True))
    for place, status in lost.items():
        rows[place] = dataclasses.replace(rows[place], **(NO_TIME | {"status": status}))
    (figure,) = drawn(run_of(tmp_path, rows))
    hatched: dict[str, Any] = {str(patch.get_label()): patch for patch in figure.axes[0].patches}
    for place, status in lost.items():
        x, y = hatched[f"_{status}"].get_xy()
        assert (x + 0.5, y + 0.5) == (place % 2, place // 2)
    hatches = [hatched[f"_{status}"].get_hatch() for status in STATUSES]
    assert len(set(hatches[:3])) == 3 and hatches[3] == hatches[4] not in hatches[:3]
    assert len(empty(figure)) == 5 and "5 cases have no time (" in said(figure)
    assert described(figure) == HATCHED


HATCHED = """\
gemm/x: measured / predicted
legend: out of memory | skipped | unsupported | crashed | timeout
[] columns of A and rows of B, k x rows of A and C, m: 12 cells, 1 skipped, 1 unsupported, 1 out_of_memory, \
1 timeout, 1 crashed
[] - x measured / predicted time: 2"""


def test_a_time_without_a_prediction_is_neither_neutral_nor_hatched(tmp_path: Path) -> None:
    run = run_of(tmp_path, grid((256, 512)))
    at = (run.frame["sweep"] == "gemm/x") & (run.frame["m"] == 256) & (run.frame["k"] == 512)
    (figure,) = drawn(with_frame(run, run.frame.assign(predicted_s=run.frame["predicted_s"].mask(at))))
    (patch,) = figure.axes[0].patches
    assert patch.get_label() == "_unpredicted" and not patch.get_hatch()
    assert legend(figure) == ["no prediction"] and empty(figure) == [(0, 0)]
    assert drawn(with_frame(run, run.frame.assign(predicted_s=np.nan))) == []


def asked(plot: str) -> dict[str, Any]:
    return {"plot": [yaml.safe_load(plot)]}


def test_ways_of_running_are_panels(tmp_path: Path) -> None:
    rows = [*grid((256, 512)), *grid((256, 512), name="triton")]
    problems = [Gemm(m=m, n=512, k=k, dtype="tf32") for m in (256, 512) for k in (512, 1024)]
    run = run_of(tmp_path, [*rows, *(row(H100, "gemm/x", each, "triton") for each in problems)])
    (section,) = sections(swept(run), asked("{kind: heatmap, x: k, y: m}"))
    assert section == Section("k", panels=("implementation", "dtype"), kind="heatmap", y="m")
    (figure,) = drawn(run, section)
    ways = [("cublas", "float16"), ("triton", "float16"), ("triton", "tf32")]
    assert [axes.get_title(loc="left") for axes in figure.axes[:-1]] == [", ".join(way) for way in ways]
    by_way = swept(run).groupby(["implementation", "dtype"])
    for i, way in enumerate(ways):
        here = by_way.get_group(way)
        wanted = np.log2(here["median_s"] / here["predicted_s"])
        assert sorted(cells(figure, i).compressed()) == pytest.approx(sorted(wanted))


# --- many rows --------------------------------------------------------------------------------------


def many(folder: Path, count: int) -> DeviceRun:
    """This many scattered products, as a table of somebody's has them."""
    chance = random.Random(SEED)
    problems: set[Gemm] = set()
    while len(problems) < count:
        m, k = (2 ** chance.randint(5, 12) * chance.choice((1, 3)) for _ in range(2))
        n = int(2 ** chance.uniform(0, 12))  # in every cell of a map are some
        problems.add(Gemm(m=m, n=n, k=k, dtype="float16"))
    return run_of(folder, [row(H100, "gemm/x", problem, "cublas") for problem in sorted(problems, key=str)])


def test_thousands_of_problems_are_maps_not_panels(tmp_path: Path) -> None:
    run = many(tmp_path, 900)
    found = sections(swept(run), {})
    assert {(one.kind, frozenset((one.x, one.y))) for one in found} == {
        ("heatmap", frozenset(pair)) for pair in (("k", "m"), ("k", "n"), ("m", "n"))
    }
    here = [stem for stem in opened(pages(only(run, ["gemm/x"]), {})) if "roofline" not in stem]
    assert here == [f"gemm/x-{i}-heatmap" for i in (1, 2, 3)]


def test_sizes_without_end_share_cells_by_powers_of_two(tmp_path: Path) -> None:
    run = many(tmp_path, 900)
    rows = swept(run)
    (figure,) = drawn(run, Section("n", kind="heatmap", y="k"))
    power = np.floor(np.log2(rows["n"])).astype(int)
    ratio = rows["median_s"] / rows["predicted_s"]
    wanted = rows.assign(power=power, ratio=ratio).pivot_table("ratio", "k", "power", aggfunc="median")
    wanted = wanted.reindex(columns=range(power.min(), power.max() + 1))
    assert labels(figure) == (texts([2**i for i in wanted.columns]), texts([int(k) for k in wanted.index]))
    assert cells(figure).filled(np.nan) == pytest.approx(np.log2(wanted.to_numpy()), nan_ok=True)
    assert "A cell of n reaches from its label to below twice it." in said(figure)
