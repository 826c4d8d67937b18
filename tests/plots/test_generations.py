"""Generations: every case at its speed-up, what datasheets promise beside it, a device always the same."""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from typer.testing import CliRunner

from bench.__main__ import app as bench_app
from bench.device.datasheet import datasheets, find_datasheet, slug_of
from bench.judge.frame import DeviceRun, load
from bench.spec import parameters_text
from bench.store.schema import Measurement
from kernels.gemm.problem import Gemm
from plots.base import style
from plots.figures import compared, generations, speedups
from plots.figures.generations_detail import BINS, LEAST, MANY, binned
from tests.drawing import run_seed
from tests.plots.drawn import lines, loaded
from tests.plots.synthetic import CPU, H100, H200, Machine, ceilings, row

SIZES = (16, 64, 256, 1024, 4096, 8192)
PUBLIC = Path(__file__).parents[2] / "results" / "reference" / "public"
BOUND_BY = ("launch", "memory", "compute")
PROBLEMS = [Gemm(m=m, n=n, k=4160, dtype="float16") for m, n in itertools.product(SIZES, SIZES)]


def scored(folder: Path, rows: list[Measurement]) -> DeviceRun:
    run = loaded(folder / rows[0].device, rows)
    # Of rows in doubt: tests/bench/test_speedup.py.
    run.frame["suspect"], run.frame["blamed"] = False, False
    return run


def measured(machine: Machine, problems: list[Gemm] = PROBLEMS, **facts: Any) -> list[Measurement]:
    found = [
        row(machine, "gemm/some", one, "cublas" if machine is not CPU else "onednn", **facts)
        for one in problems
    ]
    return [*ceilings(machine), *found]


def found_of(runs: list[DeviceRun], base: str) -> tuple[speedups.ComparedDevices | None, list[str]]:
    rows = pd.concat([run.frame for run in runs], ignore_index=True)
    return speedups.compare(rows, base, {run.device: run.datasheet for run in runs})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[DeviceRun]:
    folder = tmp_path_factory.mktemp("generations")
    chance = np.random.default_rng(run_seed())
    some = measured(H200)
    # Else the made-up devices would differ by one number alone, and every spread be nothing.
    times = [
        (one.median_s or 0.0) * chance.lognormal(0, 0.3) if one.sweep == "gemm/some" else one.median_s
        for one in some
    ]
    some = [
        dataclasses.replace(one, median_s=time, low_s=None, high_s=None)
        for one, time in zip(some, times, strict=True)
    ]
    # And one far from all others, for which few cases make room.
    smallest = Gemm(m=16, n=16, k=4160, dtype="float16")
    (stray,) = [i for i, one in enumerate(some) if one.parameters == parameters_text(smallest.parameters())]
    some[stray] = dataclasses.replace(some[stray], median_s=(some[stray].median_s or 0.0) * 40)
    return [scored(folder, measured(H100)), scored(folder, some)]


@pytest.fixture(scope="module")
def figures(runs: list[DeviceRun]) -> dict[str, Figure]:
    found, apart = found_of(runs, "h100-sxm")
    assert found is not None and apart == []
    with style.look():
        return {name: page.figure for name, page in generations.draw(found)}


def panel(figure: Figure, title: str) -> Axes:
    (axes,) = [axes for axes in figure.axes if axes.get_title("left").startswith(title)]
    return axes


def ratios(runs: list[DeviceRun], bound_by: str) -> dict[float, float]:
    """parameters -> speed-up of the 16-bit problems that this bounds on the base."""
    before, after = (
        run.frame[(run.frame["operator"] == "gemm") & (run.frame["dtype"] == "float16")] for run in runs
    )
    before = before[(before["bound_by"] == bound_by) & (before["implementation"] == "cublas")]
    both = before.merge(after[after["implementation"] == "cublas"], on="parameters")
    return dict(zip(both["parameters"], both["median_s_x"] / both["median_s_y"], strict=True))


@pytest.mark.parametrize("bound_by", BOUND_BY)
def test_a_marker_at_the_median_and_a_bar_over_the_middle_80(
    runs: list[DeviceRun], figures: dict[str, Figure], bound_by: str
) -> None:
    axes = panel(figures["generations"], f"gemm, float16, bound by {bound_by}")
    wanted = list(ratios(runs, bound_by).values())
    (marker,) = lines(axes, "_median")
    assert len(wanted) >= 3 and marker.get_ydata()[0] == pytest.approx(np.median(wanted))
    (bar,) = [c for c in axes.collections if c.get_label() == "_spread"]
    assert bar.get_segments()[0][:, 1] == pytest.approx(np.quantile(wanted, (0.1, 0.9)))  # type: ignore[attr-defined]
    assert axes.get_title("left").endswith(f", n = {len(wanted)}")


def test_the_datasheets_promises_stand_beside(figures: dict[str, Figure]) -> None:
    ticks = figures["generations"].axes[-1].get_xticklabels()
    assert [text.get_text() for text in ticks] == ["H200 SXM 141 GB"]
    promised = {"memory": ("_bandwidth", 4.8 / 3.352), "compute": ("_peak", 1.0), "launch": ("", 0.0)}
    for bound_by, (label, ratio) in promised.items():
        for axes in (
            panel(figures["generations"], f"gemm, float16, bound by {bound_by}"),
            panel(figures["generations-gemm-float16"], f"bound by {bound_by}"),
        ):
            stated = [*lines(axes, "_bandwidth"), *lines(axes, "_peak")]
            assert [line.get_label() for line in stated] == [label] * bool(label)
            assert all(line.get_ydata()[0] == pytest.approx(ratio, rel=1e-3) for line in stated)
            assert lines(axes, "_base")[0].get_ydata()[0] == 1.0
            low, high = axes.get_ylim()
            assert low < 1.0 and high > ratio and axes.get_yscale() == "log" and 1.0 in axes.get_yticks()
    said = [text.get_text() for text in panel(figures["generations-gemm-float16"], "bound by memory").texts]
    assert said == ["bandwidth 1.43 x"]


@pytest.mark.parametrize("bound_by", BOUND_BY)
def test_few_cases_are_points_at_their_speed_up(
    runs: list[DeviceRun], figures: dict[str, Figure], bound_by: str
) -> None:
    axes = panel(figures["generations-gemm-float16"], f"bound by {bound_by}: median")
    (points,) = lines(axes, "_case")
    wanted = ratios(runs, bound_by)
    assert sorted(points.get_ydata()) == pytest.approx(sorted(wanted.values()))
    assert f"n = {len(wanted)}" in axes.get_title("left")
    low, high = axes.get_xlim()
    assert low < min(points.get_xdata()) and max(points.get_xdata()) < high


def test_ceilings_are_cases_too_and_an_empty_launch_has_no_bytes(figures: dict[str, Figure]) -> None:
    overview = [figure for name, figure in figures.items() if name in ("generations", "generations-2")]
    titles = [axes.get_title("left") for figure in overview for axes in figure.axes]
    kinds = {title.split(", n =")[0] for title in titles}
    assert {"stream, float32, bound by memory", "launch, float32, bound by launch"} <= kinds
    assert "generations-stream-float32" in figures and "generations-launch-float32" not in figures
    axes = figures["generations-stream-float32"].axes[0]
    assert axes.get_xlabel() == "bytes of a launch"


def test_many_cases_are_a_band_around_the_medians_of_neighbours(chance: np.random.Generator) -> None:
    x = 10 ** chance.uniform(0, 3, 5000)
    y = np.exp(chance.normal(0, 0.2, x.size)) * x
    place, low, middle, high = binned(x, y)
    assert (
        place.size == BINS and (np.diff(place) > 0).all() and (low < middle).all() and (middle < high).all()
    )
    width = 1000 ** (1 / BINS)
    inside = (x >= x.min() * width**4) & (x < x.min() * width**5)
    edges = np.geomspace(x.min(), x.max(), BINS + 1)
    inside = (x >= edges[4]) & (x < edges[5])
    assert middle[4] == pytest.approx(np.median(y[inside])) and low[4] == pytest.approx(
        np.quantile(y[inside], 0.1)
    )
    assert high[4] == pytest.approx(np.quantile(y[inside], 0.9))
    assert place[4] == pytest.approx(np.exp(np.log(x[inside]).mean()))


def test_bins_with_few_cases_are_left_out_and_never_all() -> None:
    x = np.array([1.0] * LEAST + [10.0] * (LEAST - 1) + [1000.0] * LEAST)
    place, *_ = binned(x, np.ones_like(x))
    assert place == pytest.approx([1.0, 1000.0])
    even = np.geomspace(1, 1000, MANY + 1)
    assert binned(even, even)[0].size > 0
    one = np.full(MANY + 1, 7.0)
    assert binned(one, one)[0] == pytest.approx([7.0])


def test_a_band_is_drawn_from_so_many_cases_on(tmp_path: Path) -> None:
    some = [Gemm(m=4096, n=64, k=4096 + 8 * i, dtype="float16") for i in range(MANY + 1)]
    for n, kinds in ((MANY, ["_case"]), (MANY + 1, ["_median"])):
        both = [scored(tmp_path / str(n), measured(machine, some[:n])) for machine in (H100, H200)]
        found, _ = found_of(both, "h100-sxm")
        assert found is not None
        with style.look():
            figure = dict(generations.draw(found))["generations-gemm-float16"].figure
        axes = panel(figure, "bound by memory")
        assert [kind for kind in ("_case", "_median") if lines(axes, kind)] == kinds


def test_runs_without_a_common_case_say_so(tmp_path: Path, runs: list[DeviceRun]) -> None:
    alone = scored(tmp_path, [row(H200, "gemm/some", Gemm(m=8, n=8, k=8, dtype="float16"), "cublas")])
    found, apart = found_of([runs[0], alone], "h100-sxm")
    assert found is None
    assert apart == ["nvidia-h200 has no case in common with h100-sxm: no speed-ups are drawn"]
    told: list[str] = []
    with style.look():
        stems = [stem for stem, _ in compared.draw([runs[0], alone], "h100-sxm", told.append)]
    assert told == apart and not any(stem.startswith("generations") for stem in stems)
    assert "scorecard" in stems


def test_a_cpu_has_no_datasheet_and_says_so(tmp_path: Path) -> None:
    problems = [Gemm(m=s, n=s, k=s, dtype="float32") for s in (64, 256, 1024)]
    both = [scored(tmp_path, measured(machine, problems)) for machine in (CPU, H100)]
    found, _ = found_of(both, "amd-epyc-9r14")
    assert found is not None
    with style.look():
        figure = dict(generations.draw(found))["generations"].figure
    axes = panel(figure, "gemm, float32, bound by compute")
    assert lines(axes, "_median") and not lines(axes, "_bandwidth") and not lines(axes, "_peak")
    said = " ".join(" ".join(text.get_text() for text in figure.texts).split())
    assert "No datasheet of amd-epyc-9r14." in said and "their clocks differ" in said


def test_imported_rows_are_named_in_the_title(tmp_path: Path) -> None:
    sources = ("somebody 1.0; their file a", "somebody 1.0; their file b")
    both = [
        scored(tmp_path, [dataclasses.replace(one, source=source) for one in measured(machine)])
        for machine, source in zip((H100, H200), sources, strict=True)
    ]
    with style.look():
        for _, page in compared.draw(both, "h100-sxm", print):
            said = " ".join(text.get_text() for text in page.figure.texts)
            assert "imported: somebody 1.0" in said and "their file" not in said


def test_a_device_looks_the_same_everywhere_and_like_no_other(figures: dict[str, Figure]) -> None:
    look = style.of_device("nvidia-h200")
    drawn = [line for figure in figures.values() for axes in figure.axes for line in axes.get_lines()]
    drawn = [line for line in drawn if line.get_label() in ("_median", "_case")]
    assert drawn
    assert {(to_hex(line.get_color()).upper(), line.get_marker()) for line in drawn} == {
        (look.color, look.marker)
    }
    makers = re.compile("^(nvidia|amd)-")
    known = {makers.sub("", slug_of(name)) for sheet in datasheets() for name in sheet.match}
    assert len({style.of_device(slug) for slug in known}) == len(known)
    assert style.of_device("a100-sxm4-80gb") == style.of_device("nvidia-a100-sxm4-80gb")
    assert style.of_device("some-other-card") == style.of_device("some-other-card")


def test_a_device_that_only_has_a_datasheet_looks_like_no_other() -> None:
    """Adding a GPU is one file: figures need to be told nothing."""
    added = [f"future-{number}" for number in range(20)]
    looks = style.device_looks([*added, "nvidia-future-7", "nvidia-h200"])
    assert len({looks[name] for name in added} | set(style.DEVICES.values())) == 20 + len(style.DEVICES)
    assert looks["h200"] == style.DEVICES["nvidia-h200"]
    many = style.device_looks(f"card-{number}" for number in range(99))
    assert len(many) == 99 + len(style.DEVICES)


def test_pages_hold_no_more_than_twelve_panels(tmp_path: Path) -> None:
    kinds = [
        Gemm(m=m, n=n, k=n, dtype=dtype)  # type: ignore[arg-type]
        for (m, n), dtype in itertools.product(
            ((16, 16), (16, 4096), (4096, 4096)), ("float16", "bfloat16", "tf32", "float32", "float64")
        )
    ]
    both = [scored(tmp_path, measured(machine, kinds)) for machine in (H100, H200)]
    found, _ = found_of(both, "h100-sxm")
    assert found is not None
    with style.look():
        drawn = {name: page.figure for name, page in generations.draw(found)}
    many = [len(drawn[name].axes) for name in ("generations", "generations-2")]
    titles = {
        axes.get_title("left") for name in ("generations", "generations-2") for axes in drawn[name].axes
    }
    assert many[0] == generations.MOST_PANELS and len(titles) == sum(many) and 0 < many[1] <= 12


def test_figure_command_and_readme_say_the_same_of_public_gpus() -> None:
    """The medians of A100, H100 and B200: drawn, printed and in the caption of docs/figures.md."""
    folders = [PUBLIC / f"nvidia-{name}" for name in ("a100-sxm4-80gb", "h100-80gb-hbm3", "b200")]
    done = CliRunner().invoke(bench_app, ["compare", *map(str, folders), "--across", "device"])
    assert done.exit_code == 0, done.output
    runs = [run for folder in folders for run in load([folder], find_datasheet)]
    found, _ = found_of(runs, runs[0].device)
    assert found is not None
    with style.look():
        overview = dict(generations.draw(found))["generations"].figure
    blocks = done.output.split("gemm in bfloat16, ")[1:]
    assert len(blocks) == len(overview.axes) == 4
    for block in blocks:
        axes = panel(overview, f"gemm, bfloat16, {' '.join(block.split()[:3])}")
        printed = [line.split() for line in block.splitlines() if line.startswith((" h100", " b200"))]
        assert [f"{line.get_ydata()[0]:.2f}" for line in lines(axes, "_median")] == [c[2] for c in printed]
        counts = " to ".join(dict.fromkeys(sorted((cells[1] for cells in printed), key=int)))
        assert axes.get_title("left").endswith(f", n = {counts}")
        assert [f"{s.get_ydata()[0]:.2f}" for s in lines(axes, "_bandwidth") + lines(axes, "_peak")] == [
            cells[6] for cells in printed if len(cells) > 6
        ]
        caption = Path("docs/figures.md").read_text().split("figures/generations.png)")[1].split("![")[0]
        assert all(cells[2] in caption for cells in printed)
