"""How often `compare` cries wolf, and how small a change it finds: `python -m studies.compare_power`.

Pairs of synthetic runs on simulated machines (tests/bench/comparable.py), of the same code, or with every
case of the second run slower by a known share. Of the cases: how many get which verdict. Takes a seed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from bench.judge.compare import JUDGED, Verdict, compare
from tests.bench.comparable import Machine, clean, drifting, quiet, run, runs_of, stragglers, two_states
from tests.our_sweeps import role

SETTINGS: tuple[tuple[str, Machine, int], ...] = tuple(
    (kind, machine, visits)
    for kind in ("cpu", "cuda")
    for machine in (quiet, clean, stragglers, drifting, two_states)
    for visits in (1, 3)
)
"""Kind of device, machine, visits."""
EFFECTS = (0.0, 0.02, 0.05, 0.10)
CASES = 60
"""Cases of a run, beside its ceilings."""


class Shares(NamedTuple):
    """Verdicts on the cases (without ceilings) of many pairs of runs."""

    counts: Counter[Verdict]
    """Of the comparable cases."""

    @property
    def comparable(self) -> int:
        """Cases with a verdict on their times."""
        return self.counts.total()

    def of(self, *verdicts: Verdict) -> float:
        """Share of the comparable ones."""
        return sum(self.counts[verdict] for verdict in verdicts) / self.comparable


def shares(
    chance: np.random.Generator,
    machine: Machine,
    visits: int,
    effect: float,
    pairs: int,
    kind: str = "cpu",
    between_runs: float = 0.0,
    earlier: int = 0,
) -> Shares:
    """The verdicts over so many pairs of runs of CASES cases each, the second run slower by `effect`.

    `earlier`: so many runs of the device tell how far its runs differ; otherwise that is as usual.
    """
    facts: dict[str, Any] = {"device_kind": kind, "between_runs": between_runs}
    facts["earlier"] = [run(chance, machine, 8, 1, implementation="cublas", **facts) for _ in range(earlier)]
    counts: Counter[Verdict] = Counter()
    for _ in range(pairs):
        before = run(chance, machine, CASES, visits, **facts)
        after = run(chance, machine, CASES, visits, 1 + effect, run_id="b", **facts)
        found = compare(runs_of(before), runs_of(after))
        counts.update(one.verdict for one in found.of(*JUDGED) if role(one.case.sweep) == "measurement")
    return Shares(counts)


def table(seed: int, pairs: int) -> Iterator[str]:
    """A line for each kind of device, machine, number of visits and effect."""
    yield f"seed {seed}, {pairs} pairs of runs of {CASES} cases a line"
    yield "kind machine      visits  effect   FASTER   SLOWER     SAMEUNDECIDED"
    chance = np.random.default_rng(seed)
    for kind, machine, visits in SETTINGS:
        for effect in EFFECTS:
            found = shares(chance, machine, visits, effect, pairs, kind)
            told = "".join(f"{found.of(one):9.2%}" for one in ("FASTER", "SLOWER", "SAME", "UNDECIDED"))
            yield f"{kind:4} {machine.__name__:12} {visits:6} {effect:+7.0%}{told}"


if __name__ == "__main__":
    for line in table(int(sys.argv[1]) if len(sys.argv) > 1 else 0, 10):
        print(line, flush=True)
