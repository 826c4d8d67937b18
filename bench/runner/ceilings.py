"""Ceilings of a run: those with which its cases are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from bench.device.detect import Device
from bench.runner.limits import impossible, memory_traffic
from bench.sweep.load import Case

COPY = 0.5
"""Share of its bytes that a copy writes."""
_SAME_SHARE = 1e-3
"""Two shares of written bytes that are no farther apart are one."""


def needed_ceilings(requested: Iterable[Case], ceilings: Iterable[Case], device: Device) -> list[Case]:
    """The ceilings with which the cases are compared on this device; what is needed most first.

    The launch floor, the copy, the peaks of the cases' arithmetic and data types, then the passes of memory
    whose shares of written bytes are nearest to theirs; of warm cases the caches; and for a GPU's matrix
    products the caches, one SM, one tile and the calibration shapes, of which the model of tiles is made.
    All of as many threads as the cases. None if no case can run.
    """
    able = [case for case in requested if case.role == "measurement" and impossible(case, device) is None]
    ceilings = [case for case in ceilings if impossible(case, device) is None]
    all_threads = {case.threads for case in able}
    peaks = Counter(_unit(case) for case in able if case.problem.flop)
    tiles = {
        case.problem.dtype
        for case in able
        if device.kind == "cuda" and case.problem.arithmetic == "matrix" and case.problem.flop
    }
    warm = {case.threads for case in able if case.cache == "warm"}
    measured = sorted({written_share(case) for case in ceilings if is_pass(case)})
    shares = {memory_traffic(case, device)[1] for case in able if case.problem.byte}
    passes = {near for share in shares for near in _neighbours(share, measured)} | {COPY}

    def rank(ceiling: Case) -> tuple[int, int] | None:
        """How much a ceiling is needed, the least first; None if it is not."""
        problem, threads = ceiling.problem, ceiling.threads
        if threads not in all_threads:
            return None
        if ceiling.role == "roof":
            if problem.flop:
                count = peaks[_unit(ceiling)]
                return (2, -count) if count else None
            if not problem.byte:
                return 0, 0
            share = written_share(ceiling)
            if not any(abs(share - needed) < _SAME_SHARE for needed in passes):
                return None
            return (1, 0) if share == COPY else (3, 0)
        if problem.flop:
            return (5, 0) if problem.dtype in tiles else None
        if ceiling.cache == "warm":
            return (4, 0) if tiles or threads in warm else None
        return (5, 0) if tiles else None

    ranked = [(needed, case) for case in ceilings if (needed := rank(case)) is not None]
    return [case for _, case in sorted(ranked, key=lambda pair: pair[0])]


def written_share(case: Case) -> float:
    """Share of a ceiling's bytes that are written."""
    return case.problem.byte_written / case.problem.byte


def _unit(case: Case) -> tuple[str, str, str]:
    """The units whose peak the case needs: (threads, arithmetic, data type)."""
    return case.threads, case.problem.arithmetic, case.problem.dtype


def is_pass(ceiling: Case) -> bool:
    """Whether it reads or writes memory as fast as it can."""
    return ceiling.role == "roof" and bool(ceiling.problem.byte) and not ceiling.problem.flop


def _neighbours(share: float, measured: Sequence[float]) -> set[float]:
    """The measured shares between which this one lies, one if it is that; the nearest beyond the ends."""
    below = [each for each in measured if each <= share + _SAME_SHARE]
    above = [each for each in measured if each >= share - _SAME_SHARE]
    return {*below[-1:], *above[:1]}
