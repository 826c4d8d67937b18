"""How far the levels of prediction are off on public tables, however the calibration shapes are drawn.

A draw takes the eight designated shapes of sweeps/ceilings/gemm_shapes.yaml and then, as that sweep does,
points of a Halton sequence in the logarithms of m, n and k, scrambled by the draw's number and moved to the
nearest sizes that the table has: the first COUNTS of one sequence. Everything that calibrates, from
the ceilings to the learned level, is made of these rows by the code that any run goes through. Scored are
MOST others: shapes that no draw of any device holds.

Beside the levels stand what needs no model: the time of the nearest calibration shape, and gradient boosting
from the sizes alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import kernels
from bench.cli.table import lines_of, table
from bench.device.datasheet import find_datasheet
from bench.errors import UserError
from bench.interop.cloning import installed
from bench.interop.import_source import imported
from bench.interop.imported_problems import with_imported
from bench.interop.source_file import described
from bench.judge.frame import DeviceRun, known_runs, runs
from bench.judge.score import scorecard, scores
from bench.model.roofline import Floats
from bench.store.schema import Measurement
from bench.sweep import load as sweep

CALIBRATION = "ceilings/gemm_shapes"
"""The sweep whose shapes calibrate the model."""
COUNTS = (64, 512)
"""Shapes that calibrate."""
DESIGNATED = 8
"""The sweep's first shapes, from which ceilings are read."""
MOST = 2000
TRIVIAL = ("nearest shape", "boosting alone")
SIBLINGS = "L3, siblings"
"""L3 at the fewer shapes, helped by the other devices' draws of the more."""
INTERVAL = "90 % interval of L3 holds"

Sizes = tuple[int, int, int]
Errors = dict[str, list[float]]
"""Level -> its mean error in percent, a draw each; INTERVAL -> the percentage of times that it holds."""


def public_layers(say: Callable[[str], object]) -> Iterator[tuple[str, list[Sequence[Measurement]]]]:
    """Each engine and data type that engines.yaml describes, such as `vLLM fp8`, with every device's rows.

    UserError if the package that holds them is not installed, or has none.
    """
    source, folder = installed(described("engines", Path(__file__).parent))
    for table_of_one in source.tables:
        name = str(table_of_one.rows[0].result["protocol"])
        one = source.model_copy(update={"tables": (table_of_one,)})
        outcome = imported(one, folder, folder, with_imported(kernels.problem))
        for sentence in outcome.remarks:
            say(f"{name}: {sentence}")
        # Of a device's several versions of an engine the longest table; the last of those as long.
        of_device = {
            each.rows[0].device: each.rows for each in sorted(outcome.rows, key=lambda each: len(each.rows))
        }
        if not of_device:
            raise UserError(f"{folder}: holds no time of {name}")
        yield name, [of_device[device] for device in sorted(of_device)]


def prediction_lines(draws: int, say: Callable[[str], object]) -> Iterator[str]:
    """For each engine and data type a table of devices by levels: mean over draws, and their spread."""
    for name, tables in public_layers(say):
        found: dict[int, dict[str, Errors]] = {
            count: defaultdict(lambda: defaultdict(list)) for count in COUNTS
        }
        for draw in range(draws):
            for count, device, errors in _draw(tables, draw):
                for level, error in errors.items():
                    found[count][device][level].append(error)
            say(f"{name}: draw {draw + 1} of {draws}")
        for count, devices in found.items():
            head = f"{name}, {count} shapes, {draws} draws"
            yield f"{head}: mean |predicted / measured - 1| in percent, ± its standard deviation over draws"
            yield from _lines(devices)


def _draw(
    tables: Sequence[Sequence[Measurement]], draw: int
) -> Iterator[tuple[int, str, Mapping[str, float]]]:
    """(shapes, device, errors) of every device in one draw."""
    sizes = [[_size(row) for row in rows] for rows in tables]
    orders = [drawn(some, max(COUNTS), draw) for some in sizes]
    taken = {size for some, order in zip(sizes, orders, strict=True) for size in (some[i] for i in order)}
    calibrating: dict[int, list[DeviceRun]] = {}
    for count in COUNTS:
        chosen = (
            [replace(rows[i], role="calibration", sweep=CALIBRATION) for i in order[:count]]
            for rows, order in zip(tables, orders, strict=True)
        )
        calibrating[count] = [run for some in chosen for run in runs(some)]
    known = list(known_runs(calibrating[max(COUNTS)], find_datasheet))
    for rows, some, *both in zip(tables, sizes, *calibrating.values(), strict=True):
        free = [i for i, size in enumerate(some) if size not in taken]
        kept = np.random.default_rng(draw).choice(free, min(MOST, len(free)), replace=False)
        scored = [rows[i] for i in kept]
        others = [one for one in known if one.device_name != rows[0].device_name]
        for count, run in zip(COUNTS, both, strict=True):
            errors = _errors(run, scored) | _trivial(run.rows, scored)
            if count == min(COUNTS):
                errors[SIBLINGS] = _errors(replace(run, siblings=others), scored)["L3"]
            yield count, run.device, errors


def drawn(sizes: Sequence[Sizes], count: int, draw: int) -> list[int]:
    """Which of these sizes calibrate: the designated ones, then `count` less those in the order of a draw."""
    from scipy.stats import qmc

    (loaded,) = sweep.load_all(sweep.select(CALIBRATION), kernels.problem, sm_count=1)
    at = {size: i for i, size in enumerate(sizes)}
    designated = (case.problem.product for case in loaded.cases[:DESIGNATED])
    chosen = {at[size]: None for size in designated if size in at}
    axes = [np.unique(axis) for axis in np.array(sizes).T]
    logs = [np.log(axis) for axis in axes]
    points, count = qmc.Halton(3, seed=draw), min(count, len(sizes))
    while len(chosen) < count:
        for point in points.random(count):
            m, n, k = (
                int(axis[np.abs(log - (log[0] + share * (log[-1] - log[0]))).argmin()])
                for axis, log, share in zip(axes, logs, point, strict=True)
            )
            if (m, n, k) in at and len(chosen) < count:
                chosen[at[m, n, k]] = None
    return list(chosen)


def _size(row: Measurement) -> Sizes:
    return row.product_m, row.product_n, row.product_k  # type: ignore[return-value]


def _errors(run: DeviceRun, scored: Sequence[Measurement]) -> dict[str, float]:
    """Level -> mean error in percent of this run on these rows."""
    run = replace(run, rows=[*run.rows, *scored], datasheet=find_datasheet(run.device_name))
    found = scores(scorecard(run.frame))
    (coverage,) = (one.coverage for one in found if one.coverage is not None)
    return {one.level: one.mape for one in found} | {INTERVAL: coverage}


def _trivial(shapes: Sequence[Measurement], scored: Sequence[Measurement]) -> dict[str, float]:
    from sklearn.ensemble import HistGradientBoostingRegressor

    (at, known_s), (wanted, measured_s) = _logs(shapes), _logs(scored)
    nearest = [np.square(at - one).sum(axis=1).argmin() for one in wanted]
    boosted = (
        HistGradientBoostingRegressor(random_state=0, min_samples_leaf=5).fit(at, known_s).predict(wanted)
    )
    logs = (known_s[nearest], boosted)
    return {
        name: 100 * float(np.abs(np.exp(log - measured_s) - 1).mean())
        for name, log in zip(TRIVIAL, logs, strict=True)
    }


def _logs(rows: Sequence[Measurement]) -> tuple[Floats, Floats]:
    """Logarithms of m, n and k, [rows, 3], and of the times."""
    return np.log(np.array([_size(row) for row in rows], dtype=float)), np.log(
        np.array([row.median_s for row in rows])
    )


def _lines(devices: Mapping[str, Errors]) -> list[str]:
    levels = list(dict.fromkeys(level for errors in devices.values() for level in errors))
    shown = table("device", *(f">{level}" for level in levels))
    for device, errors in devices.items():
        shown.add_row(
            device, *(f"{np.mean(errors[level]):.1f} ± {np.std(errors[level]):.1f}" for level in levels)
        )
    by_draw = {level: np.mean([errors[level] for errors in devices.values()], axis=0) for level in levels}
    shown.add_row("mean of devices", *(f"{one.mean():.1f} ± {one.std():.1f}" for one in by_draw.values()))
    return lines_of(shown)
