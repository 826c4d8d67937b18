"""`python -m bench explain CASE RESULT`: everything that a result holds about one case."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import kernels
from bench.case_name import parameter_words, row_name
from bench.cli.application import left_out
from bench.cli.result_tables import rate_text
from bench.device.datasheet import find_datasheet
from bench.errors import UserError, meant
from bench.format import NOT_MEASURABLE, amount_text, half_text, seconds_text, share_text
from bench.judge.flags import FLAGS
from bench.judge.frame import DeviceRun
from bench.judge.history.series import CASE
from bench.judge.noise import interval
from bench.judge.read_runs import runs
from bench.judge.tensor_cores import tensor_cores
from bench.model import roofline
from bench.spec import is_custom
from bench.store.parquet import read_rows, tables
from bench.store.schema import Measurement, RunKey
from bench.sweep.load import SWEEPS

if TYPE_CHECKING:
    import pandas as pd

Facts = Iterator[tuple[str, str]]
"""Lines of a part of the report: a label, empty where the line above goes on, and its text."""


def explanation(name: str, result: Path) -> Iterator[str]:
    """The report on the newest row of this name in a result file or folder.

    UserError if no row has this name; it names the closest.
    """
    path, newest = _newest(name, result)
    (run,) = runs(read_rows(path, newest))
    run = replace(run, datasheet=find_datasheet(run.device_name))
    place = next(place for place, row in enumerate(run.rows) if row_name(row) == name)
    row, derived = run.rows[place], run.frame.iloc[place]
    here = (SWEEPS / f"{row.sweep}.yaml").exists()  # else it has left its rows only
    yield from (name, "", "What it is")
    yield from _aligned(_what(row, here))
    yield from ("", "What was predicted")
    yield from _aligned(_predicted(row, run, derived))
    yield from ("", "What was measured")
    yield from _aligned(_measured(row, run, derived))
    raised = set(run.flags_of(row))
    yield from ("", "Flags, and what they mean" if raised else "No flag is raised.")
    yield from _aligned((flag.name, flag.means) for flag in FLAGS if flag.name in raised)
    yield from ("", "How to measure it again", f"  {command_again(row, here)}")
    if row.is_timed and row.source is None and here:
        yield from ("", "How to profile one launch of it", f"  python -m bench run {name} --once")


def _newest(name: str, result: Path) -> tuple[Path, RunKey]:
    """The file and the run with the newest row of the case. UserError if no run has it."""
    found: dict[RunKey, Path] = {}
    names = set()
    for path, table in tables([result], left_out, columns=[*RunKey._fields, *CASE]):
        for row in table.to_pandas(use_threads=False).itertuples(index=False):
            names.add(each := row_name(row))
            if each == name:
                found[RunKey.of(row)] = path
    if not found:
        raise UserError(f"{result}: no row is of a case called {name}{meant(name, names)}")
    newest = max(found, key=lambda key: (key.run_id, key))
    return found[newest], newest


def command_again(row: Measurement, here: bool) -> str:
    """The command that measures this case again; `here`: its sweep is a file of this checkout."""
    if row.source is not None:
        return "It was not measured by roofbench: see by whom."
    if not here and row.sweep == row.operator:  # so `run` calls its sweep
        which = ["--implementation", row.implementation]
        if is_custom(row.implementation):
            file, function = row.configuration.rpartition(" ")[0], row.implementation.partition(":")[2]
            which = ["--kernel", f"{file}:{function}"]
        which += ["--cache", "warm"] if row.cache == "warm" else []
        given = parameter_words(json.loads(row.parameters))
        words = ["python", "-m", "bench", "run", row.operator, *given, *which]
    else:
        words = ["pytest", "bench/", "--benchmark", *([] if here else ["--bench-sweep", f"{row.sweep}.yaml"])]
        words += ["--bench-case", row_name(row)]
    words += ["--bench-device", "cpu"] if row.device_kind == "cpu" else []
    return shlex.join(words)


def _aligned(facts: Facts) -> Iterator[str]:
    lines = list(facts)
    width = max((len(word) for word, _ in lines), default=0)
    for word, text in lines:
        yield f"  {word:<{width}}  {text}".rstrip()


def _what(row: Measurement, here: bool) -> Facts:
    yield "sweep", row.sweep + ("" if here else ", not a sweep of this checkout")
    try:
        summary = kernels.problem(row.operator).implementation(row.implementation).summary
    except LookupError:
        own = is_custom(row.implementation)
        summary = "a custom kernel" if own else "not among the implementations of this checkout"
    yield "operator", f"{row.operator} by {row.implementation}: {summary}"
    if row.configuration:
        prefix = "its file and the hash of its text:" if is_custom(row.implementation) else "it chose"
        yield "", f"{prefix} {row.configuration}"
    parameters = json.loads(row.parameters)
    yield "parameters", ", ".join(f"{key} {value}" for key, value in parameters.items())
    threads = ", by one thread" if row.threads_asked == "one" else ""
    yield "condition", f"{row.cache} cache{threads}"
    per_byte = f"; {row.flop / row.byte:.3g} FLOP/byte" if row.flop and row.byte else ""
    yield "one launch", f"{row.flop:,} FLOP; {row.byte:,} bytes, {row.byte_written:,} written{per_byte}"
    if row.byte_moved != row.byte:
        yield "", f"this implementation has to move {row.byte_moved:,} bytes"


def _predicted(row: Measurement, run: DeviceRun, derived: pd.Series) -> Facts:
    """The levels of prediction, each with what it rests on."""
    if row.arithmetic in roofline.WITHOUT_ROOF:
        yield "predictions", f"none: {roofline.WITHOUT_ROOF[row.arithmetic]}"
        return
    sheet = run.datasheet
    stated_s = roofline.datasheet_s(row.flop, row.byte, row.arithmetic, row.dtype, sheet)
    if sheet is None or stated_s is None:
        yield "L0 datasheet", "no prediction: the device has no datasheet, or it lacks a number"
    else:
        peak, bandwidth = sheet.peak_flop_per_s(row.arithmetic, row.dtype), sheet.bandwidth_byte_per_s
        stated = [amount_text(peak, "FLOP/s")] if row.flop and peak else []
        stated += [amount_text(bandwidth, "B/s")] if row.byte and bandwidth else []
        yield "L0 datasheet", f"{seconds_text(stated_s)}, at {' and '.join(stated)} as stated"
    yield from _calibrated(row, run)
    if derived["structured_s"] > 0:
        bound = f", bound by {derived['structured_limiter']}" if derived["structured_limiter"] else ""
        yield "L2 structure", f"{seconds_text(derived['structured_s'])}{bound}"
    else:
        yield "L2 structure", "no prediction: its run lacks ceilings, or calibration shapes of its data type"
    if derived["calibrating"]:
        yield "", "predictions are made of this row, so it is no test of them"


def _calibrated(row: Measurement, run: DeviceRun) -> Facts:
    """The second level with its three terms and the ceilings that they rest on."""
    ceilings = run.roof_of(row)
    byte, share = roofline.row_traffic(row)
    prediction = roofline.calibrated_row(row, ceilings)
    if prediction is None or ceilings.launch_s is None:
        yield "L1 calibrated", "no prediction: its run did not measure the ceilings that it needs"
        return
    sum_of = "the launch, and the longer of compute and memory"
    yield "L1 calibrated", f"{seconds_text(prediction.seconds)}, bound by {prediction.bound_by}: {sum_of}"
    if ceilings.launch:
        yield "", f"launch   {seconds_text(ceilings.launch_s):>8}, from {ceilings.launch.row}"
    peak = ceilings.peak_flop_per_s.get((row.arithmetic, row.dtype))
    if row.flop and peak:
        took = seconds_text(row.flop / peak.per_s)
        yield "", f"compute  {took:>8} at {amount_text(peak.per_s, 'FLOP/s')} at best, from {peak.row}"
    per_byte_s = ceilings.second_per_byte(share)
    if byte and per_byte_s is not None:
        took = seconds_text(byte * float(per_byte_s))
        bandwidth = amount_text(1 / float(per_byte_s), "B/s")
        yield "", f"memory   {took:>8} at {bandwidth}, {share_text(share)} of it written"


def _intervals(row: Measurement, run: DeviceRun) -> Facts:
    """Where other visits of the run would find the row, and where other runs."""
    within = run.within[next(place for place, each in enumerate(run.rows) if each is row)]
    if within is not None and row.source is None:
        by = "its visits" if within.by == "visits" else "assumed: no case was visited twice"
        half = half_text(row.median_s, *run.run_ends_s(row))
        told = half if half == NOT_MEASURABLE else f"95 of 100 visits within {half}"
        yield "in this run", f"{told} ({by})"
    if (found := interval(row, within)) is None or row.median_s is None:
        yield "in other runs", "no interval"
        return
    down, up, runs = found
    ends_s = row.median_s * math.exp(-down), row.median_s * math.exp(up)
    by = "earlier runs of the device" if runs.by == "history" else "the usual spread of such work, assumed"
    text = f"95 of 100 between {seconds_text(ends_s[0])} and {seconds_text(ends_s[1])}"
    yield "in other runs", f"{text} ({half_text(row.median_s, *ends_s)}; by {by})"


def _measured(row: Measurement, run: DeviceRun, derived: pd.Series) -> Facts:
    system = "driver" if row.device_kind == "cuda" else "kernel"
    versions = ((system, row.driver), ("torch", row.torch), ("Triton", row.triton))
    known = [f"{what} {version}" for what, version in versions if version]
    yield "where", ", ".join([row.device_name, *known, *(row.environment or "").split()])
    when = f"{row.utc[:19].replace('T', ' ')} UTC" if row.utc else "unknown"
    yield "when", f"{when}; run {run.name}, commit {row.commit or 'unknown'}"
    if row.source is not None:
        yield "by whom", f"imported, not measured by roofbench: {row.source}"
    if row.median_s is None:
        yield "no time", f"{row.status}: {row.reason}"
        return
    launches = f" of {row.launches:,} launches" if row.launches and row.launches > 1 else ""
    for number, samples_s in enumerate(row.visit_samples_s, 1):
        median = seconds_text(float(np.median(samples_s)))
        yield f"visit {number}", f"{median:>8}, median of {len(samples_s)} samples{launches}"
    for why, seconds in zip(row.set_aside or (), row.set_aside_s or (), strict=False):
        yield "set aside", f"{seconds_text(seconds) or 'no time':>8}: {why}"
    yield "published", f"{seconds_text(row.median_s)}"
    yield from _intervals(row, run)
    if rate := rate_text(row):
        yield "", rate
    if share := share_text(roofline.of_roof(row.median_s, derived["predicted_s"])):
        yield "", f"{share} of the speed that L1 predicts"
    if row.kernels and row.arithmetic == "matrix":
        yield "Tensor Cores", f"{tensor_cores(row.kernels)}, by the names of its kernels: {row.kernels}"
    if row.relative_error is not None and row.tolerance is not None:
        allowed = f"its arithmetic explains {row.tolerance:.1e}"
        yield "result", f"its largest error is {row.relative_error:.1e} of the largest value; {allowed}"
