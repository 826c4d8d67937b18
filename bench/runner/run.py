"""Between pytest and the session: options in, cases out, progress and the closing report.

The root conftest.py hands pytest's hooks on to here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bench.cli import run_summary
from bench.cli.plan import forecast_lines, refined_line
from bench.device.detect import Device, DeviceError, chosen, unusable_gpu
from bench.device.lock import DeviceBusy
from bench.environment.dependencies import lacking_extras
from bench.errors import UserError
from bench.judge.flags import flags
from bench.model.ceilings import Ceilings, by_run, manner
from bench.runner.cover import Check, cover
from bench.runner.planner import budget_s
from bench.runner.row import tags_of
from bench.runner.session import RESULTS, Session, measured_s
from bench.runner.shard import Shard
from bench.runner.visits import MOST_ASKED
from bench.runner.walking import at_once, in_turn, prepare_all
from bench.runner.worker_process import WorkerDied
from bench.spec import DeviceKind, Problem
from bench.store.schema import Measurement, StoreError
from bench.sweep import load as sweep
from bench.sweep.load import Case, SweepError


class Refusal(ValueError):
    """One sentence saying what was given and what is possible; the command ends with exit code 2."""


class Asked(NamedTuple):
    """One test of this invocation: a case on a device."""

    session: Session
    case: Case


class Run:
    """One invocation of pytest on bench/: a session on each device."""

    KEY = pytest.StashKey["Run"]()

    def __init__(
        self,
        option: Any,
        find: Callable[[str], type[Problem]],
        names: Callable[[], list[str]],
    ) -> None:
        """Options as pytest parsed them; `find` and `names` are those of kernels/. Raises Refusal."""
        self._names, self._find = names, find
        self.timing = bool(option.bench_run)
        self.stopped = ""
        """Why the measuring ended early; empty if it did not."""
        self.unwritten = ""
        """Why a result file could not be written; empty if all were."""
        self.unstarted = ""
        """Why no worker starts where examples were asked for; empty if they do."""
        self.cases: dict[str, Asked] = {}
        self.sessions: list[Session] = []
        self._rows: dict[tuple[str, str], Measurement] = {}
        self._roofs: dict[tuple[str, str], Ceilings] = {}
        self._examples: dict[str, tuple[Session, str, Problem]] = {}
        self._broken: dict[str, str] = {}
        self._asked: list[Asked] = []
        """What is to be measured, once that is planned."""
        self.left_out_examples = 0
        """Examples that a few others stand for."""
        self._elsewhere: list[Asked] = []
        self._others = 0
        """Cases that are other shards' to measure."""
        self._shard = _shard(option.bench_shard)
        self._concurrent = bool(option.bench_concurrent) and self.timing
        try:
            devices = chosen(option.bench_device)
            choosing = devices[0].kind == "cpu" and option.bench_device in ("auto", "all")
            self._unusable = unusable_gpu() if choosing else ""
            if self._concurrent and len(devices) == 1:
                raise Refusal(
                    f"--bench-concurrent times several GPUs at the same time, but {devices[0]} would be "
                    "the only device: leave it out, or give --bench-device all where there are several GPUs"
                )
            self.sessions = [self._session(option, device, len(devices)) for device in devices]
            if self.timing:
                for session in self.sessions:
                    for case in self._load(option.bench_sweep, session):
                        self.cases[self._name(session, case.id)] = Asked(session, case)
                for session in self.sessions if not option.collectonly else ():
                    session.open()
        except (DeviceError, DeviceBusy, SweepError, StoreError, UserError) as error:
            self.release()
            raise Refusal(str(error)) from error

    def _session(self, option: Any, device: Device, count: int) -> Session:
        made = Session(
            device,
            Path(option.bench_results) if option.bench_results else RESULTS,
            _budget_s(option.bench_budget, device.kind),
            option.bench_resume,
            _visits(option.bench_visits),
            option.bench_regime,
            shard=self._shard,
            concurrent_gpus=count if self._concurrent else 1,
            tags=tags_of(option.bench_tag),
            anonymous=option.bench_anonymous,
        )
        if count > 1:  # GPUs of one kind share a folder
            made.run_id += f"-gpu{device.index}"
        return made

    def _name(self, session: Session, name: str) -> str:
        """Identifier of a test; with several devices it begins with the device."""
        return name if len(self.sessions) == 1 else f"{_short(session.device)}/{name}"

    @property
    def device(self) -> Device:
        """The first device."""
        return self.sessions[0].device

    def _load(self, names: Iterable[str], session: Session) -> list[Case]:
        paths = [path for name in names for path in sweep.select(name)] if names else sweep.SWEEPS
        if isinstance(paths, list):
            ceilings = [path for path in sweep.select("ceilings") if path not in paths]
            paths = [*ceilings, *dict.fromkeys(paths)]  # nothing is read without its roof
        loaded = sweep.load_all(paths, self._find, session.device.sm_count)
        session.sweeps = {one.name: one.sweep.declared for one in loaded}
        cases = [case for one in loaded for case in one.cases]
        # A roof of one thread costs time, and only cases of one thread need it.
        few = any(case.threads == "one" and case.role == "measurement" for case in cases)
        return [case for case in cases if few or case.threads == "all" or case.role == "measurement"]

    def order(self, identifiers: list[str]) -> list[int]:
        """Of these cases, as indices, those that run, in order.

        Left out is what another shard runs, and what its device cannot run; of the latter there will be rows.
        Device by device; ceilings first, then an even spread first. If none can run, all count as running:
        each is then shown with its reason.
        """
        asked = [self.cases[identifier] for identifier in identifiers]
        ours = [i for i, (_, case) in enumerate(asked) if self._is_in_shard(case)]
        here = [i for i in ours if not asked[i].session.missing(asked[i].case)] or ours
        running: list[int] = []
        for session in self.sessions:
            ours = [i for i in here if asked[i].session is session]
            between = [i for i in ours if asked[i].case.role == "measurement"]
            between = [between[i] for i in session.planner.ordered([asked[j].case for j in between])]
            running += [*(i for i in ours if asked[i].case.role != "measurement"), *between]
        self._elsewhere = [asked[i] for i in sorted(set(ours) - set(here))]
        self._others = len(asked) - len(ours)
        return running

    def _is_in_shard(self, case: Case) -> bool:
        """Whether this run is to measure it: nothing is read without its roof, so ceilings always."""
        return self._shard is None or case.role != "measurement" or case.key in self._shard

    def plan(self, identifiers: Iterable[str]) -> None:
        """The cases that pytest has left after -k and the like, in the order of their first visits."""
        asked = self._asked = [self.cases[i] for i in identifiers if i in self.cases]
        for session in self.sessions:
            session.plan(one.case for one in asked if one.session is session)

    # ---- measuring

    def measure(self, say: Callable[[str], None], most_failures: int | None) -> None:
        """Visit every case of every device, one device after the other, or all at once if so asked.

        `say` shows a line. Once `most_failures` cases have failed (None or 0: no limit) no more are visited.
        StoreError, saying what is safe, if results can no longer be written.
        """
        several = len(self.sessions) > 1
        if several:
            say(f"compiling and checking on {len(self.sessions)} devices at once")
            prepare_all(self.sessions)
        number = failures = 0
        refined: set[str] = set()
        to_come = {session.run_id: session.expected for session in self.sessions}
        with at_once(self.sessions) if self._concurrent else nullcontext(in_turn(self.sessions)) as visits:
            for session, case, row, expected, left_s, given_up in visits:
                to_come[session.run_id] = expected
                if case.role == "measurement" and session.run_id not in refined and session.has_ceilings:
                    refined.add(session.run_id)
                    line = refined_line(session.forecast())
                    say(f"{_short(session.device)} {line}" if several else line)
                if row.status not in ("unsupported", "skipped"):
                    number += 1
                    total = number + sum(to_come.values())
                    line = run_summary.progress_line(number, total, row, case.problem, left_s)
                    say(f"{_short(session.device)} {line}" if several else line)
                    failures += row.status != "ok"
                for sentence in given_up:
                    say(sentence)
                if most_failures is not None and 0 < most_failures <= failures:
                    self.stopped = f"stopped after {failures} failures"
                    return

    def collect(self) -> None:
        """Join the visits into rows, for the tests to show."""
        rows = [row for one in self.sessions for row in one.rows()]
        self._rows = {(row.run_id, row.case): row for row in rows}
        self._roofs = {(run_id, how): found for (_, run_id, how), found in by_run(rows).items()}

    def row(self, identifier: str) -> Measurement | None:
        """The row of a test's case; None if it was not measured."""
        session, case = self.cases[identifier]
        return self._rows.get((session.run_id, case.key))

    def extra_info(self, row: Measurement) -> dict[str, Any]:
        """What pytest-benchmark's JSON says beside the times: plain values, nothing infinite."""
        names = ["device", "device_id", "run_id", "clock", "cache", "protocol", "regime", "visits", "status"]
        names += ["stop", "settled", "threads", "flop", "byte", "low_s", "high_s", "relative_error"]
        info = {name: getattr(row, name) for name in [*names, "configuration"]}
        info["flags"] = flags(row, self._roofs.get((row.run_id, manner(row.cache, row.threads_asked))))
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in info.items()}

    # ---- examples

    def examples(self) -> Iterable[str]:
        """Identifiers of every (implementation, example) that the devices can run.

        If a worker does not start there are none, and `unstarted` says why: every operator would show it.
        """
        if not self._examples:
            try:
                for session in self.sessions:
                    self._libraries(session)
            except Refusal as refusal:
                self.unstarted = str(refusal)
                return []
            for name in self._names():
                for session in self.sessions:
                    self._add_examples(session, name)
        return [*self._examples, *self._broken]

    def _libraries(self, session: Session) -> str:
        """What computes, with versions; starts the worker. Refusal if it does not start."""
        try:
            return session.libraries
        except WorkerDied as death:
            raise Refusal(f"{session.device} cannot be measured: {death}") from death

    def _add_examples(self, session: Session, name: str) -> None:
        try:
            problem, found = self._find(name), session.examples(name)
        except RuntimeError as error:  # one broken operator must not hide what the others show
            self._broken[self._name(session, f"{name}-cannot-be-tested")] = str(error)
            return
        for parameters in found:
            example = problem(**parameters)
            for one in problem.implementations:
                if not session.cannot(one.name, example):
                    words = f"{name}-{one.name}-{example}".replace(" ", "-")
                    self._examples[self._name(session, words)] = (session, one.name, example)

    def few(self, identifiers: Sequence[str]) -> list[int]:
        """Of these examples, as indices, a few that stand for all: on each device, whatever is broken too."""
        kept = [index for index, name in enumerate(identifiers) if name in self._broken]
        for session in self.sessions:
            ours = [
                i for i, name in enumerate(identifiers) if self._examples.get(name, (None,))[0] is session
            ]
            found = [self._examples[identifiers[index]] for index in ours]
            checks = [Check(example.operator, name, example.parameters()) for _, name, example in found]
            kept += [ours[place] for place in cover(checks)]
        return sorted(kept)

    def check(self, identifier: str) -> dict[str, Any]:
        """Whether an implementation is right at an example, in the first configuration that compiles."""
        if identifier in self._broken:
            return {"status": "error", "reason": self._broken[identifier]}
        session, implementation, example = self._examples[identifier]
        return session.check(implementation, example, quick=True)

    # ---- the end

    def finish(self, interrupted: bool) -> None:
        """Close the run; an interrupted one keeps its journal for the next to recover or resume.

        A result file that cannot be written is told in `unwritten`: its journal is kept, too.
        """
        self._kept: list[Path] = []
        for session in self.sessions:
            if interrupted and self.timing:
                if journal := session.interrupted():
                    self._kept.append(journal)
                continue
            try:
                session.close()
            except StoreError as error:
                self.unwritten = str(error)

    def release(self) -> None:
        """Let go of what was opened before a refusal; a resumed journal stays what it was."""
        for session in self.sessions:
            session.interrupted()

    def opening(self) -> list[str]:
        """What is said before the first case. Refusal if a worker does not start."""
        lines = []
        for session in self.sessions:
            device, libraries = session.device, self._libraries(session)
            session.refuse(one.case for one in self._elsewhere if one.session is session)
            units = f"{device.sm_count} {'SMs' if device.kind == 'cuda' else 'cores'}"
            lines.append(f"roofbench: {device.name}, {units}; {libraries}")
            if self.timing:
                limit = (
                    "no limit" if session.budget_s is None else run_summary.duration_text(session.budget_s)
                )
                times = {1: "once", 2: "twice"}.get(session.visits, f"{session.visits} times")
                how = "" if session.regime == "sustained" else f" in {session.regime}"
                lines.append(f"budget: {limit}; each case visited {times}{how}; results: {session.folder}")
                lines += forecast_lines(session.forecast(), session.budget_s, _rests_on(session.device))
            lines += [session.unlocked] if session.unlocked else []
            if device.kind == "cuda":
                asked = [one for one in self._asked if one.session is session]
                lines += lacking_extras(one.case.implementation for one in asked)
            for left in session.left:
                lines.append(run_summary.left_text(left.path, left.rows, left.resumed))
                lines += left.damage
        if self._concurrent:
            lines.append(
                f"timed at the same time on {len(self.sessions)} GPUs: how they do under each other's load; "
                "such rows are never compared with those of runs made alone"
            )
        if self._shard is not None:
            lines.append(f"shard {self._shard}: {self._others} cases are other shards'; ceilings are in each")
        if self._unusable:
            lines.append(f"no GPU is measured: {self._unusable}")
        return lines

    def closing(self) -> list[str]:
        """The table, the account, and where everything is, for each device."""
        lines: list[str] = []
        for session in self.sessions:
            lines += self._closing(session)
        lines += [line for line in (self.stopped, self.unwritten) if line]
        for journal in self._kept:
            lines.append(f"interrupted: these rows are safe in {journal}")
        if self._kept:
            lines.append("the next run turns them into a result file; --bench-resume goes on from there")
        return lines

    def _closing(self, session: Session) -> list[str]:
        place = {one.case.key: place for place, one in enumerate(self.cases.values())}
        rows = sorted(session.rows(), key=lambda row: place.get(row.case, len(place)))
        if not rows:
            return ["no case was measured"]
        problems = [self._find(row.operator).model_validate_json(row.parameters) for row in rows]
        lines = [f"{session.device}:"] if len(self.sessions) > 1 else []
        if drawn := run_summary.table(rows, problems):
            lines += [drawn, ""]
        lines += run_summary.account(rows, session.elapsed_s, measured_s(rows), session.starting_s)
        lines += [*session.given_up, *session.renewed]
        lines += run_summary.sentinel_lines(rows)
        if not any(row.role != "measurement" for row in rows):
            lines.append('no ceilings among these cases, so no roof: give -k "ceilings or (...)"')
        if session.path is not None:
            lines.append(f"results: {session.path}")
            lines.append(f"figures: python -m plots {session.path}")
        return lines


def _rests_on(device: Device) -> str:
    """What is known of how long a launch takes before the ceilings are measured; empty if nothing."""
    if device.datasheet is None:
        return ""
    return (
        f"the datasheet of {device.datasheet.name} and on assumptions (`python -m bench list --bench-budget` "
        "lists them); the ceilings and then every visit correct it"
    )


def _short(device: Device) -> str:
    return "cpu" if device.index is None else f"cuda:{device.index}"


def _shard(given: str | None) -> Shard | None:
    try:
        return None if given is None else Shard.of(given)
    except ValueError as error:
        raise Refusal(f"--bench-shard {error}") from error


def _visits(given: str) -> int:
    try:
        visits = int(given)
    except ValueError:
        visits = 0
    if not 1 <= visits <= MOST_ASKED:
        raise Refusal(f"--bench-visits {given}: give a number from 1 to {MOST_ASKED}")
    return visits


def _budget_s(given: str | None, kind: DeviceKind) -> float | None:
    try:
        return budget_s(given, kind)
    except ValueError as error:
        raise Refusal(str(error)) from error
