"""Conditions that must match before two rows are compared, and those that are only reported.

A blocking fact changes times by itself (another device, protocol, clock, driver ...): where it differs, a
difference in time says nothing about the kernel. Who wants to know what that very fact does names it, and it
is waved through. The versions of libraries and the commit never block: they are what people compare.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from bench.errors import UserError, meant
from bench.store.schema import Measurement


@dataclass(frozen=True)
class Fact:
    """A condition under which a row was measured."""

    name: str
    """Its name in reports and for `--across`."""
    column: str
    kinds: tuple[str, ...] = ("cpu", "cuda")
    """Kinds of device for which it means anything."""
    shown: Callable[[Any], str] = str
    """The value as text; equal texts are equal facts."""
    absent: str | None = None
    """The text for a row without a value; None: unknown."""


OURS = "roofbench"
"""Author of a row without a source."""


SWEEP = Fact("sweep", "sweep")
"""Where a case stands: the same work in a sweep of another name is found, and compared on request."""
BLOCKING = (
    # Without the name of a file: files differ from device to device.
    Fact("source", "source", shown=lambda source: source.partition(";")[0], absent=OURS),
    Fact("device", "device"),
    # Two cards of one model differ by a few percent. On a CPU this is the host's name, and no identity.
    Fact("unit", "device_id", ("cuda",)),
    Fact("driver", "driver"),
    Fact("protocol", "protocol"),
    Fact("regime", "regime"),
    Fact("clock", "clock"),
    Fact("cache", "cache"),
    Fact("threads", "threads", shown=lambda value: f"{value:.0f}"),
    Fact("inputs", "fill"),  # what the numbers are changes the power, and that the clock
    Fact("power-limit", "power_limit_w", ("cuda",), lambda watt: f"{watt:.0f} W"),
    Fact("ecc", "ecc", ("cuda",)),
    Fact("mig", "mig", ("cuda",)),
    Fact("persistence", "persistence", ("cuda",)),
    # GPUs that are timed together share power, cooling and host. Older rows were all timed alone.
    Fact("concurrent-gpus", "concurrent_gpus", ("cuda",), lambda count: f"{count:.0f}", absent="1"),
    Fact("governor", "governor", ("cpu",)),
    SWEEP,
)
"""Rows that differ in one of these are not compared."""
NEVER_BLOCKING = (
    Fact("environment", "environment"),
    Fact("commit", "commit"),
    Fact("torch", "torch"),
    Fact("triton", "triton"),
    Fact("libraries", "libraries"),
    Fact("host", "device_id", ("cpu",)),
)
"""Rows that differ in these are compared, and the difference is reported."""
FACTS = (*(fact for fact in BLOCKING if fact is not SWEEP), *NEVER_BLOCKING)
"""All that a run as a whole has."""
SOFTWARE = tuple(fact for fact in FACTS if fact.name in ("driver", "torch", "triton", "libraries"))
"""The software that the speed of a library's kernel depends on."""
WITH_DEVICE = ("unit", "threads", "power-limit")
"""Facts that go with the device: whoever compares devices compares these. (One thread or all is another
matter: that is part of the case.)"""
WITH_SOURCE = ("protocol", "regime", "clock", "cache", "inputs")
"""Facts that go with who measured: nobody else has our protocol."""


class Difference(NamedTuple):
    """A fact in which two rows differ, as text."""

    fact: str
    before: str
    after: str


def waved(across: Collection[str]) -> frozenset[str]:
    """The blocking facts that may differ by these names; UserError for any other name."""
    there = [fact.name for fact in BLOCKING]
    for name in across:
        if name not in there:
            told = f"no condition that must agree{meant(name, there)}"
            raise UserError(f"--across {name}: {told}; there is {', '.join(there)}")
    also = (WITH_DEVICE if "device" in across else ()) + (WITH_SOURCE if "source" in across else ())
    return frozenset(across) | frozenset(also)


def value(row: Measurement, fact: Fact) -> str | None:
    """The fact as text; None where the row does not know it, or it means nothing on this kind of device."""
    if row.device_kind not in fact.kinds:
        return None
    recorded = getattr(row, fact.column)
    if recorded is None or recorded == "":
        return fact.absent
    return fact.shown(recorded)


def differing(before: Measurement, after: Measurement) -> list[Difference]:
    """The blocking facts in which two rows differ: those that both know."""
    values = ((fact.name, value(before, fact), value(after, fact)) for fact in BLOCKING)
    return [Difference(name, one, other) for name, one, other in values if one and other and one != other]
