"""Runner of blocks: each command in a process group of its own, with its limit and its log; then one table.

Nothing that a command does stops the next one. A few files in one folder remain, ready to be copied
elsewhere: result files, a summary, and an archive of everything else.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

from rich.markup import escape

from bench.cli.table import table_lines
from bench.device.detect import Device
from bench.environment.dependencies import ROOT, child_environment, missing, required, version
from bench.errors import UserError
from bench.format import duration_text
from bench.runner.resume import settle
from bench.runner.rows import commit
from bench.selfcheck.blocks import BLOCKS, Command, CommandBlock, calls, filled

LOGS = "logs"
ARCHIVE = "logs{}.tar.gz"
SUMMARY = "summary{}.json"
"""Names of the archive and the summary; the braces hold a number if an earlier call left such a file."""
TUNED = ROOT / "kernels" / "tuned"
"""The tuner's choices on this device, kept because the machine may not be."""
ENDING_S = 20.0
"""Seconds that a command has after SIGINT to save its rows; then it is killed."""
LEAST_S = 10.0
"""Least limit of a command, seconds, however few minutes there are."""
KEY_LENGTH = 100
NEEDS_GPU = "not run: needs a GPU"
SETTINGS = (
    *("CUDA", "NVIDIA", "TORCH", "PYTORCH", "TRITON", "CUBLAS", "OMP", "MKL"),
    *("LD_LIBRARY_PATH", "PYTHONPATH"),
)
"""Beginnings of the environment variables that can change results; others may be private."""
EXTRAS = ("cublaslt",)
SMI_S = 20.0


@dataclass(frozen=True)
class CommandOutcome:
    """The outcome of one command."""

    block: str
    command: str
    seconds: float
    outcome: str
    """`done`, `done (exit code N)`, `failed (...)`, `stopped ...`, `not run: ...`."""
    key: str
    """One line of its output."""
    log: str
    """Name of its log in the archive; empty if it was not run."""

    def __str__(self) -> str:
        """`12 s, done; 3 rows: 3 ok`."""
        return f"{self.seconds:.0f} s, {self.outcome}" + (f"; {self.key}" if self.key else "")

    @property
    def is_fine(self) -> bool:
        """Whether it did its work, or has none on this device."""
        return self.outcome.startswith("done") or self.outcome == NEEDS_GPU


def plan_lines(device: str) -> Iterator[str]:
    """The blocks with their minutes and questions, and the commands that run them in calls of ten minutes."""
    total_s = sum(block.limit_s for block in BLOCKS)
    yield f"first minutes on {device}: {len(BLOCKS)} blocks, at most {total_s / 60:.0f} minutes"
    for block in BLOCKS:
        yield f"  {block.name:<12} {block.limit_s / 60:4.1f} min  {block.question}"
    yield "in calls of at most ten minutes:"
    for call in calls():
        names = " ".join(block.name for block in call)
        yield f"  {sum(block.limit_s for block in call) / 60:4.1f} min  python -m bench first-minutes {names}"


def shares(chosen: Sequence[CommandBlock], minutes: float | None) -> float:
    """The factor on each limit with which the blocks fit into so many minutes; at most 1."""
    whole_s = sum(block.limit_s for block in chosen)
    return 1.0 if minutes is None else min(1.0, 60 * minutes / whole_s)


class Runner:
    """Runs commands one after the other and keeps their outcomes."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], share: float, say: Callable[[str], None]
    ) -> None:
        """Commands get `environment` and `share` of their limits. `say` shows a line."""
        self.folder, self.share, self._say = folder, share, say
        self._environment = dict(environment)
        self.outcomes: list[CommandOutcome] = []
        self._stopped = False

    def run(self, chosen: Sequence[CommandBlock], is_cpu: bool) -> None:
        """Run every command of these blocks, whether or not those before it failed. Ctrl-C ends the running
        command, and the rest are not run.
        """
        for block in chosen:
            self._say(f"== {block.name}: {block.question}")
            if is_cpu and block.gpu:
                self._say(f"   needs a GPU: {block.gpu}")
            before = self.rows()
            for command in block.commands:
                outcome = self._outcome_of(block, command, before, is_cpu)
                self.outcomes.append(outcome)
                self._say(f"   {command.name}: {outcome}")

    def rows(self) -> list[Path]:
        """Every result file so far, oldest first."""
        return sorted(self.folder.glob("*/*.parquet"), key=lambda path: (path.stat().st_mtime_ns, path))

    def _outcome_of(
        self, block: CommandBlock, command: Command, before: Sequence[Path], is_cpu: bool
    ) -> CommandOutcome:
        limit_s = max(LEAST_S, self.share * command.limit_s)
        every = self.rows()
        rows = [path for path in every if path not in before]
        unmet = "interrupted" if self._stopped else _unmet(command, rows, every)
        not_run = NEEDS_GPU if is_cpu and command.gpu_only else unmet and f"not run: {unmet}"
        if not_run:
            return CommandOutcome(block.name, command.name, 0.0, not_run, "", "")
        words = filled(command, limit_s, {"folder": self.folder, "rows": rows, "all": every})
        log = self.folder / LOGS / f"{block.name}-{command.name}.log"
        begin_s = time.monotonic()
        with log.open("w") as output:
            output.write(f"python -m {' '.join(words)}\nlimit {limit_s:.0f} s\n\n")
            output.flush()
            head = output.tell()
            try:
                code, was_stopped = self._process(words, output.fileno(), limit_s)
            except KeyboardInterrupt:
                self._stopped, code, was_stopped = True, -signal.SIGINT, True
        seconds = time.monotonic() - begin_s
        if was_stopped:
            outcome = "stopped by Ctrl-C" if self._stopped else f"stopped after {limit_s:.0f} s"
            self._settle()
        else:
            outcome = _outcome(code, command)
        key = key_line(log.read_bytes()[head:].decode(errors="replace"), command.key)
        return CommandOutcome(block.name, command.name, seconds, outcome, key, log.name)

    def _process(self, words: Sequence[str], output: int, limit_s: float) -> tuple[int, bool]:
        """(exit code, whether it had to be stopped). Its whole process group is gone afterwards."""
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(limit_s), False
        except subprocess.TimeoutExpired:
            return _ended(process), True
        except KeyboardInterrupt:
            _ended(process)
            raise
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what it left running

    def _settle(self) -> None:
        """Make result files from the journals of stopped runs."""
        for device in {path.parent for path in self.folder.glob("*/*.journal")}:
            try:
                settle(device)
            except UserError as error:  # the journal stays, and goes into the archive
                self._say(f"   {error}")


def _ended(process: subprocess.Popen[bytes]) -> int:
    """End a process by SIGINT, so that it saves its rows, else by SIGKILL; returns its exit code."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(ENDING_S)
    return -signal.SIGKILL  # stuck in a driver: it is left behind


def _unmet(command: Command, rows: Sequence[Path], every: Sequence[Path]) -> str:
    """Why a command that reads results has nothing to read; empty if it has something."""
    if "{rows}" in command.words and not rows:
        return "this block has left no result file"
    if "{all}" in command.words and not every:
        return "there is no result file in this folder"
    if command.words[:2] == ("bench", "compare") and len(rows) != 2:
        return f"it compares two result files, and there are {len(rows)}"
    return ""


def _outcome(code: int, command: Command) -> str:
    if code == 0:
        return "done"
    if code in command.answers:
        return f"done (exit code {code})"
    return f"failed (killed by signal {-code})" if code < 0 else f"failed (exit code {code})"


def key_line(text: str, key: str) -> str:
    """The last line that matches `key`, else the last one that is not empty; without its margins."""
    lines = [line.strip(" =│╭╰─╮╯") for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()]
    lines = [line for line in lines if line]
    matching = [line for line in lines if re.search(key, line)] or lines or [""]
    return matching[-1] if len(matching[-1]) <= KEY_LENGTH else f"{matching[-1][:KEY_LENGTH]} ..."


def session(
    chosen: Sequence[CommandBlock],
    device: Device,
    out: Path,
    minutes: float | None,
    say: Callable[[str], None],
) -> list[CommandOutcome]:
    """Run these blocks within so many minutes (None: their own limits), show the table, pack folder `out`.

    UserError if `out` cannot be written.
    """
    folder, share = out.absolute(), shares(chosen, minutes)
    try:
        (folder / LOGS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: {error.strerror}") from error
    most = duration_text(share * sum(block.limit_s for block in chosen))
    say(f"first minutes on {device}: {', '.join(block.name for block in chosen)}; at most {most}")
    facts = environment(device)
    runner = Runner(folder, child_environment(), share, say)
    runner.run(chosen, device.kind == "cpu")
    left = pack(folder, runner.outcomes, facts)
    for line in outcome_lines(runner.outcomes):
        say(line)
    say(f"{folder}: " + ", ".join(str(path.relative_to(folder)) for path in left))
    return runner.outcomes


# ---- the table and the files that remain


def outcome_lines(outcomes: Sequence[CommandOutcome]) -> Iterator[str]:
    """The table, with a row for each command."""
    rows = [(of.block, of.command, f"{of.seconds:.0f}", of.outcome, escape(of.key)) for of in outcomes]
    return table_lines(("block", "command", ">seconds", "outcome", "its key line"), rows)


def pack(folder: Path, outcomes: Sequence[CommandOutcome], facts: Mapping[str, Any]) -> list[Path]:
    """Reduce the folder to result files, the summary and one archive; returns their paths.

    The archive holds every other file of the folder (logs, JSON, `facts` in full) and the tuner's choices.
    """
    facts_file = folder / LOGS / "environment.json"
    facts_file.write_text(json.dumps(facts, indent=1))
    earlier = set(folder.glob(SUMMARY.format("*"))) | set(folder.glob(ARCHIVE.format("*")))
    short = {name: value for name, value in facts.items() if not (isinstance(value, str) and "\n" in value)}
    summary = {"commands": [asdict(outcome) for outcome in outcomes], "environment": short}
    _unused(folder, SUMMARY).write_text(json.dumps(summary, indent=1))
    kept = {*earlier, *folder.glob(SUMMARY.format("*")), *folder.glob("*/*.parquet")}
    others = [path for path in sorted(folder.rglob("*")) if path.is_file() and path not in kept]
    with tarfile.open(_unused(folder, ARCHIVE), "x:gz") as archive:
        for path in others:
            archive.add(path, str(path.relative_to(folder)))
        if TUNED.is_dir():
            archive.add(TUNED, "tuned")
    for path in others:
        path.unlink()
    shutil.rmtree(folder / LOGS, ignore_errors=True)
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _unused(folder: Path, name: str) -> Path:
    """`summary.json`, or `summary-2.json` and so on: files of an earlier call stay."""
    endings = chain([""], (f"-{number}" for number in count(2)))
    paths = (folder / name.format(ending) for ending in endings)
    return next(path for path in paths if not path.exists())


# ---- the environment of the results


def environment(device: Device) -> dict[str, Any]:
    """Facts by name: plain values, the version of each package (None: missing), texts of several lines."""
    lacking = {package.name for package in missing(EXTRAS)}
    packages = [package.name for package in required(EXTRAS)]
    return {
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "device": {name: value for name, value in asdict(device).items() if name != "datasheet"},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {
            name: None if name in lacking else version(name) or "there, version unknown" for name in packages
        },
        "variables": {name: value for name, value in sorted(os.environ.items()) if name.startswith(SETTINGS)},
        "nvidia-smi -q": _nvidia_smi() if device.kind == "cuda" else "unknown: no GPU is measured",
    }


def _nvidia_smi() -> str:
    try:
        done = subprocess.run(["nvidia-smi", "-q"], capture_output=True, text=True, timeout=SMI_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"not known: {error}"
    return done.stdout or done.stderr
