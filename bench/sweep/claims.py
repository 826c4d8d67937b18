"""Grammar of claims: what a sweep's rows should show, with bar and least number of lines, before a run.

    - id: MM-01                     # an experiment; with a letter if it makes several statements
      rules: [3, 7]
      says: K divisible by 8 is fastest
      device: {kind: cuda, capability: ">=8.0"}
      where: {implementation: cublas}
      ratio: {of: {k: "!%8"}, to: {k: "%8"}, pair: nearest k, per: flop}
      expect: above 1.03
      bar: ours
      least: 8

docs/extending.md explains every key. `bench.judge.claims` gives the verdicts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field, model_validator

from bench.sweep.conditions import NUMBER, Select
from bench.sweep.experiments import EXPERIMENTS, RULES
from bench.sweep.models import List, Strict, Text

SHARES = ("rest_share", "below_ridge_share")
"""Columns that are derived of a row whose time is divided into classes, 0 to 1."""
ANSWERS: Mapping[str, tuple[str | bool, ...]] = {
    "tensor_cores": ("used", "unused", "unknown"),
    "bound_by": ("launch", "memory", "compute"),
    "measured_bound_by": ("launch", "memory", "compute", "none"),
    "as_predicted": (True, False),
}
"""Columns that are derived of a measured row, and what they say of it (`bench.judge.claim_rows`)."""
MEASURED = ("kernels", "median_s", *SHARES, *ANSWERS)
"""Columns that only a measurement can fill."""
FACTS = (
    "operator", "implementation", "cache", "threads_asked", "intensity", "flop", "byte", *MEASURED
)  # fmt: skip
"""Columns of rows that a selection may name besides the operator's parameters."""


class Pair(NamedTuple):
    """Which rows are compared: in the same way, nearest by the columns, or `factor` times them.

    `within`: the nearest by all columns, none of them further than by `factor`; `swap`: the two columns
    change places.
    """

    how: Literal["same", "nearest", "within", "swap", "times"]
    columns: tuple[str, ...]
    factor: float = 1


_PAIR = re.compile(r"same|(nearest|swap|within ([1-9][0-9]?)%|x([2-9])) ([a-z_]+(?:=[a-z_]+)*)")


def _pair(text: str) -> Pair:
    read = _PAIR.fullmatch(text)
    if read is None:
        raise ValueError(
            "pair is `same`, `nearest k`, `nearest m=n=k`, `within 10% m=n=k`, `swap m=n` or `x2 k`, "
            f"not {text!r}"
        )
    columns = tuple(read[4].split("=")) if read[4] else ()
    if read[3]:
        return Pair("times", columns, int(read[3]))
    if read[2]:
        return Pair("within", columns, 1 + int(read[2]) / 100)
    if read[1] == "swap" and len(columns) != 2:
        raise ValueError(f"swap is of two columns, as `swap m=n`, not {text!r}")
    return Pair("swap" if read[1] == "swap" else "nearest" if columns else "same", columns)


def _valid_pair(text: str) -> str:
    _pair(text)
    return text


class Ratio(Strict):
    """Seconds, or bytes, of some rows over those of others that differ from them in nothing else."""

    of: Select = Field({})
    """The rows above the line."""
    to: Select = Field({})
    """The rows below it."""
    pair: Annotated[str, AfterValidator(_valid_pair)] = "same"
    """Which are compared: same, nearest k, nearest m=n=k, within 10% m=n=k, swap m=n, x2 k."""
    per: str = ""
    """A number by which each time is divided first: flop or a parameter."""
    y: Literal["median_s", "peak_byte"] = "median_s"
    """What is compared: median_s, seconds; peak_byte, memory."""
    less: Ratio | None = None
    """Another ratio by which this one is divided."""

    @property
    def pairing(self) -> Pair:
        """`pair` as it was read."""
        return _pair(self.pair)

    @model_validator(mode="after")
    def _compares_two(self) -> Ratio:
        if self.of == self.to and self.pairing.how not in ("times", "swap"):
            raise ValueError("ratio compares rows with themselves: of and to are the same")
        if self.less is not None and self.less.less is not None:
            raise ValueError("a ratio that is `less` another is no `less` of a third")
        if self.less is not None and self.less.y != self.y:
            raise ValueError(f"a ratio of {self.y} is no `less` of a ratio of {self.less.y}")
        return self


class Slope(Strict):
    """The exponent of seconds, bytes or a share over x: 1 if it grows as x does, one for each line."""

    x: str
    """The parameter along the line; `a=b`: a, and b may move with it."""
    of: Literal["median_s", "peak_byte", "rest_share"] = "median_s"
    """What grows or falls: median_s, seconds; peak_byte, memory; rest_share, the share of a layer's time in
    what is no product or convolution."""

    @property
    def columns(self) -> tuple[str, ...]:
        """x, and the columns that move with it."""
        return tuple(self.x.split("="))


class Spread(Strict):
    """The slowest over the quickest of rows that differ in one column only."""

    over: str
    """That column."""


class Bound(Strict):
    """Seconds over a term of the roofline, or over those of the peak's formula at the observed clock."""

    by: Literal["memory", "compute", "formula"]
    """The term."""


class Jumps(Strict):
    """How time changes across, or within, the columns of tiles or waves."""

    x: str
    """m or n, or another parameter with a step in numbers."""
    every: str | int
    """What a column ends with: tile, wave, or a number of x."""
    of: Literal["across", "within"]
    """across: a column's first row over the last of the one before; within: last over first."""

    @model_validator(mode="after")
    def _has_columns(self) -> Jumps:
        if self.every not in ("tile", "wave") and (isinstance(self.every, str) or self.every < 2):
            raise ValueError(f"every is tile, wave or a whole number above 1, not {self.every!r}")
        if isinstance(self.every, str) and self.x not in ("m", "n"):
            raise ValueError(f"tiles quantize m and n; x: {self.x} is neither")
        return self


class Knee(Strict):
    """The intensity at which the line of memory meets that of arithmetic, over the expected one."""

    x: str
    """The parameter along the line."""
    to: str | int
    """Where it should be: ridge, or a number of x."""

    @model_validator(mode="after")
    def _has_a_place(self) -> Knee:
        if self.to != "ridge" and (isinstance(self.to, str) or self.to < 1):
            raise ValueError(f"to is ridge or a whole number above 0, not {self.to!r}")
        return self


class Share(Strict):
    """The share of rows that a selection holds for."""

    of: Select
    """The selection."""


class Devices(Strict):
    """The devices that a claim is about."""

    kind: Literal["cpu", "cuda"] | None = None
    """Kind of device."""
    capability: str | None = None
    """The least compute capability, as ">=8.0"."""

    @model_validator(mode="after")
    def _is_a_least(self) -> Devices:
        if self.capability is not None and not re.fullmatch(r">=[0-9]+\.[0-9]", self.capability):
            raise ValueError(f'capability is the least there must be, as ">=8.0", not {self.capability!r}')
        return self

    def include(self, kind: str, capability: tuple[int, int] | None) -> bool:
        """Whether a device of this kind and compute capability (None: it has none) is one of them."""
        if self.kind not in (None, kind):
            return False
        least = self.capability
        return least is None or (
            capability is not None and capability >= tuple(map(int, least.removeprefix(">=").split(".")))
        )


class ExpectedRange(NamedTuple):
    """A range that an effect should be inside of, or `outside` of."""

    low: float
    high: float
    outside: bool = False

    def answer(self, low: float, high: float) -> bool | None:
        """Whether an effect with this interval is as expected; None if the interval holds a bar."""
        inside, apart = self.low <= low and high <= self.high, high < self.low or low > self.high
        if self.outside:
            inside, apart = apart, inside
        return True if inside else False if apart else None


_EXPECT = re.compile(rf"(above|below) ({NUMBER})|(between|outside) ({NUMBER}) and ({NUMBER})")
TESTS: Mapping[str, type[Strict]] = {
    "ratio": Ratio, "slope": Slope, "spread": Spread, "bound": Bound, "jumps": Jumps, "knee": Knee,
    "share": Share,
}  # fmt: skip


class Claim(Strict):
    """A statement of the document and the test by which rows decide it."""

    id: str = Field(pattern=r"^[A-Z]{2}-[0-9]{2}[a-z]?$")
    """An experiment, such as MM-01 or MM-11b."""
    rules: List[int] = ()
    """Rules of the guides that it speaks to."""
    says: Text
    """The claim in our own words."""
    device: Devices = Devices()
    """The devices that it is about; all if left out."""
    where: Select = Field({})
    """The rows that take part; all if left out."""
    ratio: Ratio | None = None
    slope: Slope | None = None
    spread: Spread | None = None
    bound: Bound | None = None
    jumps: Jumps | None = None
    knee: Knee | None = None
    share: Share | None = None
    expect: str
    """above X, below X, between X and Y, or outside X and Y."""
    bar: Text = "ours"
    """Where the numbers of `expect` stand: the document's place, or ours."""
    least: int = Field(3, ge=2)
    """The least number of lines for a verdict."""

    @property
    def test(self) -> tuple[str, Any]:
        """Name and content of its one test."""
        return next((name, value) for name in TESTS if (value := getattr(self, name)) is not None)

    @property
    def expected(self) -> ExpectedRange:
        """`expect` as it was read."""
        read = _EXPECT.fullmatch(self.expect)
        if read is None:
            raise ValueError(
                f"expect is `above X`, `below X`, `between X and Y` or `outside X and Y`, not {self.expect!r}"
            )
        if read[1]:
            bar = float(read[2])
            return ExpectedRange(*((bar, math.inf) if read[1] == "above" else (-math.inf, bar)))
        low, high = float(read[4]), float(read[5])
        if low >= high:
            raise ValueError(f"expect: {low:g} is not below {high:g}")
        return ExpectedRange(low, high, read[3] == "outside")

    @model_validator(mode="after")
    def _is_of_the_guides(self) -> Claim:
        if self.id[:5] not in EXPERIMENTS:
            group = [name for name in EXPERIMENTS if name.startswith(self.id[:3])] or EXPERIMENTS
            raise ValueError(f"there is no experiment {self.id[:5]}; there are {group[0]} to {group[-1]}")
        if unknown := [rule for rule in self.rules if rule not in RULES]:
            raise ValueError(f"there is no rule {unknown[0]}; there are 1 to {max(RULES)}")
        given = [name for name in TESTS if getattr(self, name) is not None]
        if len(given) != 1:
            has = " and ".join(given) or "none"
            raise ValueError(f"a claim has exactly one test of {', '.join(TESTS)}; {self.id} has {has}")
        assert self.expected
        return self

    @property
    def divides_time(self) -> bool:
        """Whether it is about the classes of work of a time, for which cases run again under a profiler."""
        named = {column for _, select in self.selections() for column in select}
        return not named.isdisjoint(SHARES) or getattr(self.test[1], "of", None) in SHARES

    def selections(self) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
        """Every selection in it, with its place in the file."""
        yield ("where",), self.where
        for place, test in self._tests():
            for key in ("of", "to"):
                if isinstance(select := getattr(test, key, None), dict):
                    yield (*place, key), select

    def columns(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Every parameter that its test names outside of a selection, with its place in the file."""
        for place, test in self._tests():
            for key in ("x", "over", "per"):
                for column in filter(None, getattr(test, key, "").split("=")):
                    yield (*place, key), column
            if isinstance(test, Ratio):
                yield from (((*place, "pair"), column) for column in test.pairing.columns)

    def _tests(self) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Its test, and another ratio by which that is divided, each with its place in the file."""
        name, test = self.test
        yield (name,), test
        if isinstance(test, Ratio) and test.less is not None:
            yield (name, "less"), test.less
