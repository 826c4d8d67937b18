"""Two versions of the code on machines that are made up."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bench.cli import ab
from bench.device.detect import Device
from bench.runner.ab import Contest, Side, Visiting, contests
from bench.sweep.load import Case
from bench.worker.visit import VisitResult

VISIT_S, START_S = 0.25, 1.3


class Machine:
    """Visits of two versions on a machine that drifts and is noisy; a clock that they move."""

    def __init__(self, seed: int, slowdown: float = 1.0, noise: float = 0.01) -> None:
        self.chance, self.noise, self.slowdown = np.random.default_rng(seed), noise, slowdown
        self.at_s = 0.0
        self.phase = self.chance.uniform(0, 2 * math.pi)
        self.process: dict[tuple[str, str], float] = {}

    def now(self) -> float:
        return self.at_s

    def renew(self) -> None:
        """New processes, in each of which a case has a speed of its own."""
        self.at_s += START_S
        self.process = {}

    def visit(self, case: Case, side: Side) -> VisitResult:
        self.at_s += VISIT_S
        drift = 1 + 0.03 * math.sin(self.phase + self.at_s / 20)  # 3 % up and down within a minute
        own = self.process.setdefault((side, case.key), self.chance.normal(0, self.noise / 2))
        factor = self.slowdown if side == "new" else 1.0
        median_s = 1e-3 * factor * drift * math.exp(own + self.chance.normal(0, self.noise))
        return VisitResult(median_s=median_s)

    def contests(self, cases: list[Case], budget_s: float = 60.0) -> list[Contest]:
        return list(contests(cases, self.visit, self.renew, budget_s, 0.02, self.now))


def repository(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of one commit with a bench/ and kernels/ of its own, which the commands take for theirs.

    Nothing speaks against measuring: to see what else the processors do takes half a second.
    """
    for name in ("bench", "kernels"):
        (folder / name).mkdir(parents=True)
        (folder / name / "a.py").write_text("x = 1\n")
    git(folder, "init -q")
    committed(folder)
    monkeypatch.setattr(ab, "ROOT", folder)
    monkeypatch.setattr("bench.device.health.fitness", lambda device: [])
    return folder


def committed(folder: Path) -> str:
    """Commit everything; the hash as rows have it."""
    git(folder, "add .")
    git(folder, "-c user.name=n -c user.email=e@e commit -q -m more")
    return git(folder, "rev-parse --short=12 HEAD")


def git(folder: Path, words: str) -> str:
    done = subprocess.run(["git", *words.split()], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def measured_by(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, look: Callable[[Path, Path], object] = lambda *_: None
) -> list[tuple[str, str, Path]]:
    """Let the commands measure on this machine, when `look` has seen both versions; (old a.py, new a.py,
    folder of the old) each time.
    """
    compared: list[tuple[str, str, Path]] = []

    @contextmanager
    def made_up(device: Device, old: Path, new: Path) -> Iterator[tuple[Visiting, Callable[[], None]]]:
        code = [(folder / "kernels" / "a.py").read_text() for folder in (old, new)]
        compared.append((code[0], code[1], old))
        look(old, new)
        yield machine.visit, machine.renew

    monkeypatch.setattr("bench.runner.ab.versions", made_up)
    monkeypatch.setattr("bench.runner.ab.contests", partial(contests, now=machine.now))
    return compared
