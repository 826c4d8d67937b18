"""One night: is the device fit, measure it, compare it with earlier nights, say what changed.

Measuring is the run that `pytest bench/ --benchmark` makes, in this process: ceilings, every case at three
moments of the run, ceilings again. However it ends, what it left is judged and said.
"""

from __future__ import annotations

import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.device.detect import Device
from bench.device.health import Unfit, fitness
from bench.errors import UserError
from bench.format import count_text
from bench.judge.comparison_side import case_of
from bench.judge.history.load import histories, without_trials
from bench.judge.history.series import KEY, Night
from bench.judge.history.steps import HOLDS, LEAST, JudgedHistory, Step, judged
from bench.runner.options import Options
from bench.runner.run import RunResult
from bench.store.schema import Measurement, RunKey

CLEAN, REGRESSION, NOT_COMPARABLE, BROKEN = 0, 1, 2, 3
"""Exit codes."""
LOOK_BACK = 2 * HOLDS
"""Nights that are judged again, to know since when a change of tonight stands open."""
FAILED = ("wrong", "escaped", "out_of_memory", "timeout", "crashed", "error")
"""Statuses of a case that was tried and has no time."""


@dataclass(frozen=True)
class Failing:
    """A case that had a time on some night before, and failed tonight."""

    row: Measurement
    since: str
    """The first run without a time after the last one that has one."""


@dataclass
class Tonight:
    """What came of tonight on one device."""

    device: Device
    unfit: list[Unfit] = field(default_factory=list)
    rows: list[Measurement] = field(default_factory=list)
    """Rows of tonight's run."""
    path: Path | None = None
    """Its result file."""
    refusal: str = ""
    """Why the measuring could not begin: another run has the device, an option is wrong."""
    broken: str = ""
    """Why there is no result file; empty if there is."""
    wall_s: float = 0.0
    judged: JudgedHistory | None = None
    """Everything so far, tonight last; None if there is nothing of tonight."""
    failing: list[Failing] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Files of the history that could not be used, a sentence each."""

    @property
    def refused(self) -> list[Unfit]:
        """Why nothing was measured."""
        return [remark for remark in self.unfit if remark.refuses]

    @property
    def tonight(self) -> int | None:
        """Index of tonight among the nights of the history: its last."""
        return None if self.judged is None else len(self.judged.history.nights) - 1

    @property
    def night(self) -> Night | None:
        """Tonight as a night of the history."""
        return None if self.judged is None else self.judged.history.nights[-1]

    def steps(self, *, slower: bool | None = None, kinds: Sequence[str] = ("class", "series")) -> list[Step]:
        """Steps of these kinds that stand open tonight; `slower` chooses a direction."""
        if self.judged is None:
            return []
        return [
            step
            for step in self.judged.steps
            if step.ended is None and step.kind in kinds and slower in (None, step.change.log > 0)
        ]

    def seen(self, step: Step) -> bool:
        """Whether tonight's times had a part in it: not of a case that was left out or disturbed tonight."""
        if self.judged is None:
            return False
        if step.kind == "machine":
            return bool(np.isfinite(self.judged.machine[step.row, -1]))
        rows = [step.row] if step.kind == "series" else list(step.members)
        return bool(np.isfinite(self.judged.own[rows, -1]).any())

    @property
    def compared(self) -> int:
        """Series, ceilings apart, that have a time tonight and usual times to compare it with."""
        if self.judged is None:
            return 0
        return int((self.judged.compared & ~self.judged.history.series["ceiling"].to_numpy(dtype=bool)).sum())

    @property
    def renamed(self) -> Mapping[tuple[str, str], int]:
        """(sweep of earlier nights, of tonight) -> cases of the same work, whose history begins anew."""
        if self.judged is None:
            return {}
        timed = ~np.isnan(self.judged.history.log_s)
        before, now = timed[:, :-1].any(axis=1), timed[:, -1]
        series = list(self.judged.history.series[list(KEY)].itertuples(index=False, name=None))
        ended = {series[at][1:]: series[at][0] for at in np.flatnonzero(before & ~now)}
        begun = [series[at] for at in np.flatnonzero(now & ~before) if series[at][1:] in ended]
        return Counter((ended[each[1:]], each[0]) for each in begun)

    @property
    def is_learning(self) -> bool:
        """Whether tonight has times, and too few nights before it are like it to judge them."""
        if self.judged is None or (tonight := self.night) is None:
            return False
        before = self.judged.history.nights[:-1]
        return bool(tonight.timed) and sum(night.segment == tonight.segment for night in before) < LEAST

    @property
    def exit_code(self) -> int:
        """3 broken, else 1 regression, else 2 unfit or nothing comparable, else 0, also while learning.

        A first night that failed would stop a job that has to go on.
        """
        if self.broken:
            return BROKEN
        if self.failing or any(self.seen(step) for step in self.steps(slower=True)):
            return REGRESSION
        if self.refused or self.refusal or self.steps(slower=True, kinds=("machine",)):
            return NOT_COMPARABLE
        return CLEAN if self.compared or self.is_learning else NOT_COMPARABLE


def night(
    device: Device, baseline: Path | None, options: Options, measure: Callable[[Options], RunResult]
) -> Tonight:
    """Measure the device, if it is fit, and judge what came of it.

    `options` are those of the run, which `measure` makes.
    """
    tonight = Tonight(device, unfit=fitness(device))
    if not tonight.refused:
        _measure(tonight, options, measure)
    if tonight.path is not None:
        judge(tonight, options.results, baseline)
    return tonight


def _measure(tonight: Tonight, options: Options, measure: Callable[[Options], RunResult]) -> None:
    """Make the run; note its result file, or the reason why it has none."""
    began_s = time.perf_counter()
    try:
        with _terminated_as_by_ctrl_c():
            result = measure(options)
    except UserError as error:
        tonight.refusal = str(error)
    except KeyboardInterrupt:
        tonight.broken = "the run was interrupted before it began"
    except Exception as error:  # the page is worth having; exit code 1 would be a lie
        traceback.print_exc()
        tonight.broken = f"a mistake of ours ended the run, please report it: {type(error).__name__}: {error}"
    else:
        tonight.path = result.path
        if result.path is not None:
            tonight.rows = result.rows
        else:
            kept = f"; what it measured is safe in {result.journal}: --bench-resume goes on"
            why = result.reason or "no case was measured"
            tonight.broken = f"the run left no result file: {why}{kept if result.journal else ''}"
    tonight.wall_s = time.perf_counter() - began_s


@contextmanager
def _terminated_as_by_ctrl_c() -> Iterator[None]:
    """SIGTERM, by which a CI runner ends a process, ends the measuring as Ctrl-C would: rows are kept."""
    usual = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, usual)


def judge(device_night: Tonight, results: Path, baseline: Path | None) -> None:
    """Compare tonight with every night of its device in `results` and `baseline`."""
    places = [results / device_night.device.slug]
    if baseline is not None:
        ours = baseline / device_night.device.slug
        places.append(ours if ours.is_dir() else baseline)
    there = [place for place in places if any(place.rglob("*.parquet"))]
    unit = device_night.device.id if device_night.device.kind == "cuda" else ""
    assert device_night.path is not None
    run = RunKey(device_night.device.slug, device_night.device.id, device_night.path.stem)
    for history in histories(there, device_night.left_out.append):
        if (history.device, history.unit) != (device_night.device.slug, unit):
            continue
        tonight = max((at for at, night in enumerate(history.nights) if night.run == run), default=None)
        if tonight is None:
            continue
        nights = without_trials(history.until(tonight))
        if trials := tonight + 1 - len(nights.nights):
            told = f"{count_text(trials, 'run')} that timed less than half as much as tonight: no nights"
            device_night.left_out.append(told)
        device_night.judged = judged(nights, LOOK_BACK)
    device_night.failing = list(_failing(device_night))


def _failing(device_night: Tonight) -> Iterable[Failing]:
    if device_night.judged is None or (tonight := device_night.tonight) is None:
        return
    history = device_night.judged.history
    last: dict[tuple[str, ...], int] = {}
    cases = history.series[list(KEY[:6])].itertuples(index=False, name=None)
    for case, log_s in zip(cases, history.log_s[:, :tonight], strict=True):
        if (had := np.flatnonzero(~np.isnan(log_s))).size:
            last[case] = max(last.get(case, -1), int(had[-1]))
    for row in device_night.rows:
        case = case_of(row)
        if row.status in FAILED and case in last:
            yield Failing(row, history.nights[last[case] + 1].run_id)
