"""One night: is the device fit, measure it, hold it against the nights before, say what changed.

Measuring is `pytest bench/ --benchmark` in a process of its own: ceilings, every case at three moments of the
run, ceilings again. Whatever becomes of that process, what it left is looked at and told.
"""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bench.device.detect import Device
from bench.device.health import Unfit, fitness
from bench.environment.dependencies import child_environment
from bench.judge.history.detector import Judged, Step, judged
from bench.judge.history.load import histories
from bench.judge.history.series import KEY
from bench.store.parquet import read_rows
from bench.store.schema import Measurement

ROOT = Path(__file__).parents[2]
CLEAN, REGRESSION, NOT_COMPARABLE, BROKEN = 0, 1, 2, 3
"""Exit codes."""
REFUSALS = (2, 4)
"""Exit codes with which pytest says that it was asked for something impossible."""
REFUSED = "Exit: "
"""What it begins such a sentence with."""
FAILED = ("wrong", "escaped", "out_of_memory", "timeout", "crashed", "error")
"""Statuses of a case that was tried and has no time."""


@dataclass(frozen=True)
class Failing:
    """A case that had a time on some night before, and was tried tonight in vain."""

    row: Measurement
    since: str
    """The first run without a time after the last that has one."""


@dataclass
class Night:
    """What came of tonight on one device."""

    device: Device
    unfit: list[Unfit] = field(default_factory=list)
    rows: list[Measurement] = field(default_factory=list)
    """Of tonight's run; of several shards here, of all."""
    paths: list[Path] = field(default_factory=list)
    """Result files of tonight."""
    refusal: str = ""
    """Why pytest refused to measure: another run has the device, an option is wrong."""
    broken: str = ""
    """Why there is no result file; empty if there is."""
    wall_s: float = 0.0
    judged: Judged | None = None
    """Everything so far, tonight last; None if there is nothing of tonight."""
    failing: list[Failing] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Files of the history that could not be used, a sentence each."""

    @property
    def refused(self) -> list[Unfit]:
        """Why nothing was measured."""
        return [one for one in self.unfit if one.refuses]

    @property
    def tonight(self) -> int | None:
        """Index of tonight among the nights of the history: its last, unless a clock ran ahead."""
        if self.judged is None or not self.paths:
            return None
        runs = {path.stem for path in self.paths}
        places = [at for at, night in enumerate(self.judged.history.nights) if night.run_id in runs]
        return max(places, default=None)

    def steps(self, *, slower: bool | None = None, kinds: Sequence[str] = ("class", "series")) -> list[Step]:
        """Steps of these kinds that stand open tonight; `slower` chooses a direction."""
        if self.judged is None:
            return []
        return [
            step
            for step in self.judged.steps
            if step.ended is None and step.kind in kinds and slower in (None, step.effect > 0)
        ]

    def seen(self, step: Step) -> bool:
        """Whether tonight's times had a part in it: not of a case that was left out or disturbed tonight."""
        if self.judged is None or self.tonight is None:
            return False
        found = {"machine": self.judged.machine, "class": self.judged.by_class, "series": self.judged.series}
        return not math.isnan(found[step.kind].log[step.row, self.tonight])

    @property
    def compared(self) -> int:
        """Series, ceilings apart, that have a time tonight and a band to hold it against."""
        at = self.tonight
        if self.judged is None or at is None:
            return 0
        track = self.judged.series
        usable = (track.log[:, at] == track.log[:, at]) & (track.high[:, at] == track.high[:, at])
        return int((usable & ~self.judged.history.series["ceiling"].to_numpy(dtype=bool)).sum())

    @property
    def exit_code(self) -> int:
        """3 broken, else 1 regression, else 2 unfit or nothing comparable, else 0."""
        if self.broken:
            return BROKEN
        if self.failing or any(self.seen(step) for step in self.steps(slower=True)):
            return REGRESSION
        if self.refused or self.refusal or not self.compared or self.steps(slower=True, kinds=("machine",)):
            return NOT_COMPARABLE
        return CLEAN


def worst(codes: Iterable[int]) -> int:
    """The exit code of several devices: 3 before 1 before 2 before 0."""
    order = (CLEAN, NOT_COMPARABLE, REGRESSION, BROKEN)
    return max(codes, key=order.index, default=CLEAN)


def night(
    devices: Sequence[Device],
    results: Path,
    baseline: Path | None,
    options: Sequence[str],
    say: Callable[[str], None],
    look: Callable[[Device], list[Unfit]] = fitness,
) -> list[Night]:
    """Measure the devices and judge what came of it; one Night each, in their order.

    `options` are pytest's, `say` shows a line. Devices that are not fit are left out of the measuring.
    """
    nights = [Night(device, unfit=look(device)) for device in devices]
    for one in nights:
        for remark in one.unfit:
            say(f"{one.device}: {remark}")
    fit = [one for one in nights if not one.refused]
    if fit and len(fit) == len(nights):
        _measure(fit, results, options)
    elif fit:  # one process for each that is left
        for one in fit:
            _measure([one], results, _only(options, one.device))
    for one in fit:
        if one.paths:
            judge(one, results, baseline)
    return nights


def _only(options: Sequence[str], device: Device) -> list[str]:
    """The same options for a single device."""
    kept = list(options)
    at = kept.index("--bench-device")
    kept[at + 1] = "cpu" if device.index is None else f"cuda:{device.index}"
    return [one for one in kept if one != "--bench-concurrent"]


def _measure(nights: Sequence[Night], results: Path, options: Sequence[str]) -> None:
    """Run pytest; give each night its result file, or the reason why it has none."""
    before = _files(results, nights)
    began, began_s = datetime.now(UTC), time.perf_counter()
    code, said = _pytest(["--bench-results", str(results.absolute()), *options])
    wall_s = time.perf_counter() - began_s
    new = sorted({path for path, _ in _files(results, nights) - before})
    for one in nights:
        one.wall_s = wall_s
        for path in new:
            if path.suffix == ".parquet" and path.parent.name == one.device.slug:
                _take(one, path, began)
        if one.paths:
            continue
        journals = [str(path) for path in new if path.suffix == ".journal"]
        if code in REFUSALS and not journals:
            one.refusal = said or "pytest refused to begin"
        else:
            one.broken = _why(code, journals)


def _pytest(options: Sequence[str]) -> tuple[int, str]:
    """Its exit code, and the sentence with which it refused; all that it says is shown as it says it.

    Who ends this process by SIGTERM, as a runner does, ends the measuring as Ctrl-C would: rows are kept.
    """
    command = [sys.executable, "-m", "pytest", "bench/", "--benchmark", "-p", "no:cacheprovider"]
    command += ["--benchmark-columns", "median", *options]
    with subprocess.Popen(
        command, cwd=ROOT, env=child_environment(), stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        assert process.stderr is not None
        usual = signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGINT))
        said = ""
        try:
            for line in process.stderr:
                sys.stderr.write(line)
                if line.startswith(REFUSED):
                    said = line.removeprefix(REFUSED).strip()
        except KeyboardInterrupt:  # the terminal has interrupted pytest, too
            process.wait()
        finally:
            signal.signal(signal.SIGTERM, usual)
    return process.returncode, said


def _take(one: Night, path: Path, began: datetime) -> None:
    """Tonight's rows, if the file is of this very device and of tonight.

    Two GPUs of one kind share a folder; and what a killed run left there, tonight's makes into a file.
    """
    rows = read_rows(path)
    here = [row for row in rows if row.device_id == one.device.id]
    if any(datetime.fromisoformat(row.utc) >= began for row in here):
        one.paths.append(path)
        one.rows += here


def _why(code: int, journals: Sequence[str]) -> str:
    ended = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    kept = f"; what it measured is safe in {', '.join(journals)}: --bench-resume goes on" if journals else ""
    return f"pytest {ended} and left no result file{kept}"


def _files(results: Path, nights: Sequence[Night]) -> set[tuple[Path, int]]:
    """Result files and journals with when each was last written: a night gone on with has a name."""
    folders = {results / one.device.slug for one in nights}
    paths = [path for folder in folders for path in folder.glob("*")]
    return {(path, path.stat().st_mtime_ns) for path in paths if path.suffix in (".parquet", ".journal")}


def judge(one: Night, results: Path, baseline: Path | None) -> None:
    """Hold tonight against every night of its device in `results` and `baseline`."""
    places = [results / one.device.slug]
    if baseline is not None:
        ours = baseline / one.device.slug
        places.append(ours if ours.is_dir() else baseline)
    there = [place for place in places if any(place.rglob("*.parquet"))]
    unit = one.device.id if one.device.kind == "cuda" else ""
    for history in histories(there, one.left_out.append):
        if (history.device, history.unit) == (one.device.slug, unit):
            one.judged = judged(history)
    one.failing = list(_failing(one))


def _failing(one: Night) -> Iterable[Failing]:
    if one.judged is None or (tonight := one.tonight) is None:
        return
    history = one.judged.history
    had = history.log_s[:, :tonight] == history.log_s[:, :tonight]
    last: dict[tuple[str, ...], int] = {}
    cases = history.series[list(KEY[:6])].itertuples(index=False, name=None)
    for at, case in enumerate(cases):
        if had[at].any():
            last[case] = max(last.get(case, -1), int(had[at].nonzero()[0][-1]))
    for row in one.rows:
        case = (
            row.sweep,
            row.operator,
            row.implementation,
            row.parameters,
            row.cache,
            row.threads_asked or "all",
        )
        if row.status in FAILED and case in last:
            yield Failing(row, history.nights[last[case] + 1].run_id)
