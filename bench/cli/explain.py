"""`python -m bench explain CASE RESULT`: everything that a result holds about one case."""

from __future__ import annotations

import json
import math
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import kernels
from bench.case_name import row_name
from bench.cli.application import left_out
from bench.cli.one_launch import ncu_command, words_of
from bench.cli.run_summary import rate_text
from bench.device.datasheet import find_datasheet
from bench.errors import UserError, meant
from bench.format import amount_text, duration_text, half_text, seconds_text, share_text
from bench.judge.flags import FLAGS
from bench.judge.frame import DeviceRun, runs
from bench.judge.history.series import CASE
from bench.judge.noise import own_interval
from bench.judge.tensor_cores import tensor_cores
from bench.judge.timings import counts_text, read_pool, with_learned
from bench.judge.work_class import work_of
from bench.model import roofline
from bench.model.pooled import can_learn
from bench.model.predict import cached_share
from bench.runner.rows import protocol_of
from bench.spec import is_custom
from bench.store.parquet import read_rows, tables
from bench.store.schema import Measurement, RunKey, run_names
from bench.sweep.load import load_all, select

if TYPE_CHECKING:
    import pandas as pd

CACHES = {
    "cold": "each launch finds its data in memory",
    "warm": "each launch finds its data in the cache, as far as they fit",
}
STOPS = {
    "converged": "the samples of each visit agreed",
    "budget": "the time for it had run out",
    "samples": "the most samples that are taken had been taken",
    "visits": "the visits do not agree with one another",
}
SHORT = ("status", "reason", "median_s", "low_s", "high_s")
"""Columns that summarise the outcome of a case."""


class Explained(NamedTuple):
    """A row with its run and its predictions."""

    row: Measurement
    run: DeviceRun
    """The run of the row, with the datasheet of its device."""
    derived: pd.Series
    """The row as the frame of its run holds it, with predictions."""
    evidence: str = ""
    """The timings from which a prediction is learned."""


def explanation(name: str, result: Path, others: Sequence[Path] = ()) -> Iterator[str]:
    """The report on the newest row of this name in a result file or folder, then a line for each older row.

    A GPU's time is predicted by the timings of this result and of `others`, too. UserError if no row has this
    name; it names the closest.
    """
    *earlier, newest = _looks(name, result)
    names = run_names([look.run for look in (*earlier, newest)])
    explained = explain(name, newest, names[newest.run])
    row = explained.row
    if row.device_kind == "cuda" and can_learn():
        explained = _learned(explained, [result, *others])
    title = _title(row.sweep)
    here = title is not None
    yield from (name, "", "What it is")
    yield from _aligned(_what(row, title))
    yield from ("", "What was predicted")
    yield from _aligned(_predicted(explained))
    yield from ("", "What was measured")
    yield from _aligned(_measured(explained))
    raised = set(explained.run.flags_of(row))
    yield from ("", "Flags, and what they mean" if raised else "No flag is raised.")
    yield from _aligned((flag.name, flag.means) for flag in FLAGS if flag.name in raised)
    yield from ("", "How to measure it again", f"  {command_again(row, here)}")
    if row.device_kind == "cuda" and row.is_timed and row.source is None:
        yield from ("", "How to profile one launch of it", f"  {ncu_command(row, here)}")
        if not shutil.which("ncu"):
            yield "  ncu, which is Nsight Compute, is not on the PATH here"
    if earlier:
        yield from ("", "What earlier runs say of it")
        yield from _aligned((names[look.run], look.text) for look in reversed(earlier))


class RunOutcome(NamedTuple):
    """One run's outcome for the case, as a short text."""

    run: RunKey
    path: Path
    text: str


def _title(sweep: str) -> str | None:
    """The title of a sweep; None if this checkout has no such sweep, which then has left its rows only."""
    try:
        loaded = load_all(select(sweep), kernels.problem, sm_count=1)
    except UserError:
        return None
    return next((each.sweep.title for each in loaded if each.name == sweep), None)


def _looks(name: str, result: Path) -> list[RunOutcome]:
    """The runs that have a row of this name, the newest last; UserError if there is none."""
    looks: dict[RunKey, RunOutcome] = {}
    parts = []
    for path, table in tables([result], left_out, columns=[*RunKey._fields, *CASE, *SHORT]):
        rows = table.to_pandas(use_threads=False)
        parts.append(rows)
        # A name begins with its sweep: the names of tens of thousands of other rows need not be made.
        for row in rows[rows["sweep"].map(name.startswith)].itertuples(index=False):
            if row_name(row) == name:  # of the looks of a run, as older files have them, the first counts
                run = RunKey.of(row)
                looks.setdefault(run, RunOutcome(run, path, _short(row)))
    if not looks:
        names = {row_name(row) for rows in parts for row in rows.itertuples(index=False)}
        raise UserError(f"{result}: no row is of a case called {name}{meant(name, names)}")
    return sorted(looks.values(), key=lambda look: (look.run.run_id, look.run))


def _short(row: Any) -> str:
    if row.status != "ok":
        return f"{row.status}: {row.reason}"
    return f"{seconds_text(row.median_s)} {half_text(row.median_s, row.low_s, row.high_s)}"


def explain(name: str, look: RunOutcome, called: str) -> Explained:
    """The row of this name that a run has, with its ceilings and predictions; `called`: the run's name."""
    (run,) = runs(read_rows(look.path, look.run))
    place = next(place for place, row in enumerate(run.rows) if row_name(row) == name)
    run = replace(run, name=called, datasheet=find_datasheet(run.device_name))
    return Explained(run.rows[place], run, run.frame.iloc[place])


def _learned(explained: Explained, results: Sequence[Path]) -> Explained:
    """The same with L3 by the timings in these results, where they have some of the operator."""
    row, run = explained.row, explained.run
    pool = read_pool(results, lambda _: None)
    known = pool.of(row.operator).rows
    if not len(known):
        return explained
    derived = with_learned(run, pool, {row.operator}).iloc[run.rows.index(row)]
    return explained._replace(derived=derived, evidence=f"learned from {counts_text(known)}")


def command_again(row: Measurement, here: bool) -> str:
    """The command that measures this case again; `here`: its sweep is a file of this checkout."""
    if row.source is not None:
        return "It was not measured by roofbench: see by whom."
    if not here and row.sweep == row.operator:  # so `run` calls its sweep
        words = ["python", "-m", "bench", "run", *words_of(row, here)]
    else:
        words = ["pytest", "bench/", "--benchmark", *([] if here else ["--bench-sweep", f"{row.sweep}.yaml"])]
        words += ["--bench-case", row_name(row)]
    words += ["--bench-device", "cpu"] if row.device_kind == "cpu" else []
    settings = protocol_of(row)  # a row may publish more or fewer visits than were asked for
    visits = settings.visits if settings else row.visits or 1
    words += ["--bench-visits", str(visits)] if visits > 1 else []
    return shlex.join(words)


# ---- the parts of the report: pairs of a label and its text


def _aligned(pairs: Iterator[tuple[str, str]]) -> Iterator[str]:
    lines = list(pairs)
    width = max((len(word) for word, _ in lines), default=0)
    for word, text in lines:
        yield f"  {word:<{width}}  {text}".rstrip()


def _what(row: Measurement, title: str | None) -> Iterator[tuple[str, str]]:
    yield "sweep", f"{row.sweep}: {'not a sweep of this checkout' if title is None else title}"
    yield "operator", row.operator
    try:
        summary = kernels.problem(row.operator).implementation(row.implementation).summary
    except LookupError:
        own = is_custom(row.implementation)
        summary = "a custom kernel" if own else "not among the implementations of this checkout"
    yield "implementation", f"{row.implementation}: {summary}"
    if row.configuration:
        prefix = "its file and the hash of its text:" if is_custom(row.implementation) else "it chose"
        yield "", f"{prefix} {row.configuration}"
    parameters = json.loads(row.parameters)
    yield "parameters", ", ".join(f"{key} {value}" for key, value in parameters.items())
    threads = ", by one thread" if row.threads_asked == "one" else ""
    yield "condition", f"{row.cache}: {CACHES.get(row.cache, 'unknown')}{threads}"
    ratio = row.flop / row.byte if row.byte else None
    per_byte = f"; {ratio:.3g} FLOP/byte" if ratio else ""
    yield "one launch", f"{row.flop:,} FLOP; {row.byte:,} bytes, {row.byte_written:,} written{per_byte}"
    if row.byte_moved != row.byte:
        yield "", f"this implementation has to move {row.byte_moved:,} bytes"


def _predicted(explained: Explained) -> Iterator[tuple[str, str]]:
    row, run, derived, evidence = explained
    if row.arithmetic in roofline.WITHOUT_ROOF:
        yield "predictions", f"none: {roofline.WITHOUT_ROOF[row.arithmetic]}"
        return
    sheet = run.datasheet
    stated_s = roofline.datasheet_s(row.flop, row.byte, row.arithmetic, row.dtype, sheet)
    if sheet is None:
        yield "L0 datasheet", "no prediction: there is no datasheet of this device"
    elif stated_s is None:
        yield "L0 datasheet", "no prediction: the datasheet lacks a number that is needed"
    else:
        peak, bandwidth = sheet.peak_flop_per_s(row.arithmetic, row.dtype), sheet.bandwidth_byte_per_s
        stated = [amount_text(peak, "FLOP/s")] if row.flop and peak else []
        stated += [amount_text(bandwidth, "B/s")] if row.byte and bandwidth else []
        yield "L0 datasheet", f"{seconds_text(stated_s)}, at {' and '.join(stated)} as stated"
    yield from _calibrated(explained)
    if derived["structured_s"] != derived["structured_s"]:
        yield (
            "L2 structure",
            "no prediction: it needs ceilings, or calibration shapes of its data type, that this run lacks",
        )
    else:
        bound_by = derived["structured_limiter"]
        bound = f", bound by {bound_by}" if bound_by else ""
        yield "L2 structure", f"{seconds_text(derived['structured_s'])}{bound}"
    if derived["learned_low_s"] == derived["learned_low_s"]:
        low, high = (seconds_text(derived[f"learned_{end}_s"]) for end in ("low", "high"))
        yield "L3 learned", f"{seconds_text(derived['learned_s'])}, nine in ten between {low} and {high}"
        if evidence:
            yield "", evidence
    elif explained.row.device_kind == "cuda" and not can_learn():
        yield "L3 learned", "no prediction: scikit-learn is not installed"
    if derived["calibrating"]:
        yield "", "predictions are made of this row, so it is no test of them"


def _calibrated(explained: Explained) -> Iterator[tuple[str, str]]:
    """The second level with its three terms and the ceilings that they rest on."""
    row, ceilings = explained.row, explained.run.roof_of(explained.row)
    byte, share = roofline.row_traffic(row)
    prediction = roofline.calibrated_row(row, ceilings)
    if prediction is None or ceilings.launch_s is None:
        yield "L1 calibrated", "no prediction: its run did not measure the ceilings that it needs"
        return
    yield (
        "L1 calibrated",
        f"{seconds_text(prediction.seconds)}, bound by {prediction.bound_by}: the launch, and the longer of "
        "compute and memory",
    )
    if ceilings.launch:
        yield "", f"launch   {seconds_text(ceilings.launch_s):>8}, from {ceilings.launch.row}"
    peak = ceilings.peak_flop_per_s.get((row.arithmetic, row.dtype))
    if row.flop and peak:
        took = seconds_text(row.flop / peak.per_s)
        yield "", f"compute  {took:>8} at {amount_text(peak.per_s, 'FLOP/s')}, from {peak.row}"
    per_byte_s = ceilings.second_per_byte(share)
    if byte and per_byte_s is not None:
        known = ceilings.bandwidth_byte_per_s
        below = max((at for at in known if at <= share), default=min(known))
        above = min((at for at in known if at >= share), default=max(known))
        probes = " and ".join(known[at].row for at in dict.fromkeys((below, above)))
        took = seconds_text(byte * float(per_byte_s))
        bandwidth = amount_text(1 / float(per_byte_s), "B/s")
        yield "", f"memory   {took:>8} at {bandwidth}, {share_text(share)} of it written, from {probes}"


def _measured(explained: Explained) -> Iterator[tuple[str, str]]:
    row = explained.row
    system = "driver" if row.device_kind == "cuda" else "kernel"
    versions = ((system, row.driver), ("torch", row.torch), ("Triton", row.triton))
    known = [f"{what} {version}" for what, version in versions if version]
    yield "where", ", ".join([row.device_name, *known])
    when = f"{row.utc[:19].replace('T', ' ')} UTC" if row.utc else "unknown"
    yield "when", f"{when}; run {explained.run.name}, commit {row.commit or 'unknown'}"
    if row.source is not None:
        yield "by whom", f"imported, not measured by roofbench: {row.source}"
    if row.median_s is None:
        yield "no time", f"{row.status}: {row.reason}"
        return
    yield from _visits(row)
    if row.low_s is not None and row.high_s is not None:
        ends = f"95 % interval {seconds_text(row.low_s)} to {seconds_text(row.high_s)}"
        ends += f" ({half_text(row.median_s, row.low_s, row.high_s)})"
    else:
        ends = "no interval: too few samples" if row.samples_s else "no interval is known"
    yield "published", f"{seconds_text(row.median_s)}, {ends}"
    if row.noise_visits is not None and row.noise_runs is not None and row.samples_s:
        yield "", _widened(row)
    if rate := rate_text(row):
        yield "", rate
    for level, column in (("L1", "predicted_s"), ("L2", "structured_s"), ("L3", "learned_s")):
        if share := share_text(roofline.of_roof(row.median_s, explained.derived[column])):
            yield "", f"{share} of the speed that {level} predicts"
    yield from _measured_limits(explained)
    if row.stop is not None:
        yield "sampling", f"ended because {STOPS.get(row.stop, row.stop)}"
    if row.relative_error is not None and row.tolerance is not None:
        yield (
            "result",
            f"its largest error is {row.relative_error:.1e} of the largest value; its arithmetic explains "
            f"{row.tolerance:.1e}",
        )


def _widened(row: Measurement) -> str:
    """How far the noise between visits and between runs widened the interval."""
    assert row.median_s and row.noise_visits is not None and row.noise_runs is not None
    alone = half_text(row.median_s, *own_interval(row))
    visits, runs = (share_text(math.expm1(half), 1) for half in (row.noise_visits, row.noise_runs))
    return (
        f"{alone} by its samples alone; ±{visits} since visits differ in this run "
        f"({work_of(row).text}), ±{runs} since runs do"
    )


def _measured_limits(explained: Explained) -> Iterator[tuple[str, str]]:
    """What the time says of what bounded it, and what the kernels' names say of Tensor Cores."""
    row = explained.row
    terms = roofline.row_terms(row, explained.run.roof_of(row))
    predicted = roofline.largest_term(terms)
    if predicted and row.median_s and not cached_share(row):  # a cache is none of the terms
        nearest = roofline.nearest_term(row.median_s, terms)
        if nearest in roofline.TERMS:
            ratio = row.median_s / terms[roofline.TERMS.index(nearest)]
            text = f"{nearest}, the term of L1 that the time is nearest to: {ratio:.2f} times that"
        else:
            text = f"none of L1's terms: the time is more than a factor of {roofline.NEAR:g} from each"
        yield "bound by", text + ("" if nearest == predicted else f"; predicted: {predicted}")
    if row.kernels and row.arithmetic == "matrix":
        yield "Tensor Cores", f"{tensor_cores(row)}, by the names of its kernels: {row.kernels}"


def _visits(row: Measurement) -> Iterator[tuple[str, str]]:
    """Each published visit with its median, then those set aside, with the reason."""
    for number, samples_s in enumerate(row.visit_samples_s, 1):
        at = row.visit_at_s[number - 1] if row.visit_at_s and len(row.visit_at_s) >= number else None
        after = f", {duration_text(at)} after the run began" if at is not None else ""
        several = f" of {row.launches:,} launches" if row.launches and row.launches > 1 else ""
        median = seconds_text(float(np.median(samples_s)))
        yield f"visit {number}", f"{median:>8}, median of {len(samples_s)} samples{several}{after}"
    for why, seconds in zip(row.set_aside or (), row.set_aside_s or (), strict=False):
        yield "set aside", f"{seconds_text(seconds) or 'no time':>8}: {why}"
    if row.settled is not None:
        words = "yes, on most visits" if row.settled else "no: times still drifted when sampling began"
        yield "settled", words
