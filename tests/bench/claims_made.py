"""Rows whose effect is known, for each kind of test that a claim can have."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from bench.device.datasheet import find_datasheet
from bench.judge.claims import Declared, JudgedClaim, judge
from bench.judge.read_runs import runs
from bench.model.roofline import row_terms
from bench.store.schema import Measurement
from bench.sweep.claims import Claim
from kernels.gemm.problem import Gemm
from tests.bench.rows import Chance
from tests.plots.synthetic import H100, ceilings, row

SWEEP = "gemm/mine"
TRUTH = 1.25
"""Of every kind of rows below; of shares 0.25, of slopes 0.25 too."""


def timed(seconds: float, implementation: str = "cublas", half: float = 0.005, **what: Any) -> Measurement:
    """A product that took `seconds`, known to `half` of them; `what`: its parameters and columns."""
    parameters = {"m": 4096, "n": 4096, "k": 4096, "dtype": "float16", "layout": "TN"}
    given = {name: what.pop(name, usual) for name, usual in parameters.items()}
    given |= {name: what.pop(name) for name in ("beta",) if name in what}
    ends = {"low_s": seconds * (1 - half), "high_s": seconds * (1 + half)}
    within = {"run_low_s": ends["low_s"], "run_high_s": ends["high_s"], "run_half": half, "run_by": "visits"}
    times = {"median_s": seconds, **ends, **within}
    return row(H100, SWEEP, Gemm(**given), implementation, **(times | what))


def ratios(chance: Chance, scatter: float = 0.002) -> Iterator[Measurement]:
    for k in range(4000, 4100):
        slower = TRUTH if k % 8 else 1.0
        yield timed(1e-6 * k * slower * chance.normal(1, scatter), k=k)


def slopes(chance: Chance, scatter: float = 0.002) -> Iterator[Measurement]:
    for m in range(256, 2048, 256):
        for n in (16, 64, 256, 1024):
            yield timed(1e-6 * m * n**0.25 * chance.normal(1, scatter), m=m, n=n)


def spreads(chance: Chance, scatter: float = 0.002) -> Iterator[Measurement]:
    for m in range(256, 4096, 256):
        for layout, slower in (("NN", 1.0), ("NT", 1.1), ("TT", TRUTH)):
            yield timed(1e-6 * m * slower * chance.normal(1, scatter), m=m, layout=layout)


def bounds(chance: Chance, scatter: float = 0.002) -> Iterator[Measurement]:
    (roofs,) = runs(ceilings(H100))
    for m in range(1024, 9000, 512):
        product = timed(1.0, m=m, n=8)
        memory_s = row_terms(product, roofs.roof_of(product))[1]
        yield timed(memory_s * TRUTH * chance.normal(1, scatter), m=m, n=8)


def jumps(chance: Chance, scatter: float = 0.002) -> Iterator[Measurement]:
    for n in range(112, 2049, 8):
        column = -(-n // 128)
        yield timed(1e-4 * TRUTH**column * chance.normal(1, scatter), "triton-256x128", n=n)


def knees(chance: Chance, scatter: float = 0.002) -> Iterator[Measurement]:
    for m in range(1024, 8193, 1024):
        for n in (8, 16, 32, 512, 1024, 2048, 4096):
            yield timed(1e-1 * max(1.0, n / (128 * TRUTH)) * chance.normal(1, scatter), m=m, n=n)


def shares(chance: Chance, scatter: float = 0.002) -> Iterator[Measurement]:
    for k in range(4000, 4200):
        yield timed(1e-1, k=k, kernels="gmma" if k % 4 == 0 else "simt")


KINDS: Mapping[str, tuple[Callable[..., Iterable[Measurement]], dict[str, Any]]] = {
    "ratio": (ratios, {"of": {"k": "!%8"}, "to": {"k": "%8"}, "pair": "nearest k", "per": "k"}),
    "slope": (slopes, {"x": "n"}),
    "spread": (spreads, {"over": "layout"}),
    "bound": (bounds, {"by": "memory"}),
    "jumps": (jumps, {"x": "n", "every": "tile", "of": "across"}),
    "knee": (knees, {"x": "n", "to": 128}),
    "share": (shares, {"of": {"kernels": "~gmma"}}),
}
"""Kind of test -> rows whose effect is TRUTH, and the test."""


def truth(kind: str) -> float:
    """The effect that the rows of a kind have."""
    return TRUTH - 1 if kind in ("slope", "share") else TRUTH


def asked(expect: str, **given: Any) -> Claim:
    """A claim with this test, and whatever else is given."""
    return Claim.model_validate({"id": "MM-01", "says": "x", "expect": expect} | given)


def claim(kind: str, expect: str, **more: Any) -> Claim:
    """A claim of this kind of test."""
    return asked(expect, **{kind: KINDS[kind][1]} | more)


def judged(
    claims: Claim | list[Claim],
    rows: Iterable[Measurement],
    cases: Any = (),
    roofs: Iterable[Measurement] | None = None,
) -> Any:
    """The verdict on one claim, or on each of several, of a run on an H100 with its ceilings, or `roofs`."""
    made = [*(ceilings(H100) if roofs is None else roofs), *rows]
    found = [dataclasses.replace(run, datasheet=find_datasheet(run.device_name)) for run in runs(made)]
    several = claims if isinstance(claims, list) else [claims]
    answers: list[JudgedClaim] = judge(found, [Declared(SWEEP, (SWEEP,), several, cases)])
    return answers if isinstance(claims, list) else answers[0]
