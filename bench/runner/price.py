"""Prices: the expected wall seconds of the visits of a case, assumed at first and learned from visits.

Nothing here has been measured on a GPU: `ASSUMED` lists every number that the prices of a GPU rest on, with
its source, and `LearnedPrices` corrects them by the visits made so far. A price is an expectation; the most
that a visit may take is a limit of its own (bench/runner/schedule.py). Pure arithmetic.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple

from bench.runner.schedule import OVERHEAD_S
from bench.sampling.protocol import Protocol
from bench.spec import DeviceKind


class Assumed(NamedTuple):
    """A number that prices rest on until there are visits, in seconds or as a share."""

    value: float
    source: str


ASSUMED: Mapping[str, Assumed] = {
    "start_s": Assumed(
        12.0,
        "starting the worker: importing torch, creating a CUDA context, loading cuBLAS and cuDNN; "
        "no measurement",
    ),
    "launch_s": Assumed(
        2e-6,
        "launch floor of a kernel: 1.0 to 2.3 us are fitted to nine GPUs' public timings "
        "(`python -m bench table --role ceiling results/reference/public`)",
    ),
    "link_byte_s": Assumed(
        4e-11,
        "each byte that crosses the link to the host: 25 GB/s, of the 31.5 that PCIe 4.0 x16 carries in each "
        "direction; pageable memory takes longer; no measurement",
    ),
    "visit_s": Assumed(
        0.04,
        "building, checking and reporting one set of tensors: 0.02 s is the median of setup_s + check_s of "
        "the committed CPU runs at one or two slots, 7 ms what the parent takes (docs/measuring.md); the "
        "rest is for two graph captures and two looks at NVML",
    ),
    "slot_s": Assumed(
        1e-4,
        "each slot of the ring: 50 us of setup_s + check_s in the committed CPU runs above 1,000 slots; "
        "twice that, since on a GPU each slot is also captured twice",
    ),
    "kernel_slot_s": Assumed(
        4e-4,
        "the same of a kernel in Triton: 122 to 396 us to build, and two or three captures of 13 to 72 us, "
        "timed with a driver that does nothing",
    ),
    "program_s": Assumed(
        0.6,
        "compiling one Triton program: 0.2 to 0.6 s on a CPU core, measured without a GPU (all targets)",
    ),
    "first_question_s": Assumed(
        1.0,
        "the tuner's first question of a kind (data type, layout, direction ...): compiling four or five "
        "candidates one by one takes 0.3 to 1.7 s of a CPU core (activations, pooling, batch normalization, "
        "for an H100 without one), the six of GEMM side by side less",
    ),
    "question_s": Assumed(
        0.5,
        "its further ones: the looks at five candidates take 0.36 s by the settings of the tuner, and 28 "
        "captures 5 ms each",
    ),
    "product_question_s": Assumed(
        0.7,
        "the same of products, in the mean: every second case asks something new (12 of the tour's 24 on an "
        "H100), which is 0.55 s and two or three new programs side by side, 0.4 s; the others compile one "
        "program, 0.4 s (27 for twelve questions, each 0.4 s of a CPU core, compiled without an H100)",
    ),
    "inductor_s": Assumed(
        2.0,
        "one shape for torch.compile: tracing, code generation and two Triton programs, or one file of C++; "
        "no measurement",
    ),
    "max_autotune_s": Assumed(
        20.0,
        "the same of a product on a GPU, for which Inductor compiles and times its templates; no measurement",
    ),
    "power_share": Assumed(
        0.5,
        "a launch whose arithmetic would fill this share of its time at the datasheet's peak brings the "
        "device to its power limit: an H100 at two thirds of its peak draws all of its 700 W",
    ),
    "power_settle_s": Assumed(
        2.8,
        "settling of a device that is bound by power: simulated for a clock that falls by 5 % with a time "
        "constant of 0.5 s and is read to 30 MHz (3.3 s for 12 %); with one of 3 s it takes all that it may",
    ),
    "power_again_s": Assumed(
        0.75,
        "the same right after another visit that was bound by power, whose clock has fallen already: the "
        "three windows that show it; no measurement",
    ),
}
"""The assumptions of prices by name."""

REMEMBERED = 200
"""Number of visits of one kind that are remembered."""
PRIOR_VISITS = 3
"""Number of visits as much as which an expectation counts."""


class PricedWork(NamedTuple):
    """The facts of a case that its price depends on."""

    implementation: str
    byte: int
    """Bytes of one set of tensors."""
    cold: bool
    launch_s: float | None
    """Predicted seconds of a launch, the launch floor included; None if unknown."""
    flop_s: float
    """Seconds that the arithmetic of a launch takes at the datasheet's peak; 0 if that is unknown."""
    renews: bool = False
    """Whether a new worker must start after its first visit."""
    multiplies: bool = False
    """Whether its arithmetic is that of matrix units."""
    chooses: bool = True
    """Whether a kernel of ours has several forms; that of a ceiling has one."""
    autotunes: bool = False
    """Whether Inductor times its templates on a GPU."""


class Price(NamedTuple):
    """Expected wall seconds of the visits of a case."""

    kind_s: float
    """Once for all cases of its kind: compiling what they share."""
    first_s: float
    """Once, in the first visit: compiling and tuning for this case alone."""
    beside_s: float
    """Seconds of each visit on top of settling and sampling: building, checking, capturing."""
    sampling_s: float | None
    """Seconds of settling and sampling of each visit; None: as long as its limit."""
    again_s: float | None = None
    """The same right after another visit that was bound by power, if it is so bound itself; else None."""

    def after(self, is_hot: bool) -> float | None:
        """`sampling_s` of a visit; `is_hot`: whether the one before it was bound by power."""
        return self.sampling_s if self.again_s is None or not is_hot else self.again_s


def price(work: PricedWork, kind: DeviceKind, cache_byte: int, settings: Protocol) -> Price:
    """The price of a case on a device of this kind and last-level cache.

    On a CPU intervals are seldom narrow before the time is up, so sampling takes as long as its limit.
    """
    if kind == "cpu":
        return Price(*_making_s(work, kind), OVERHEAD_S, None)
    slots = slots_of(work, cache_byte, settings)
    slot_s = ASSUMED["kernel_slot_s" if work.implementation.startswith("triton") else "slot_s"].value
    beside_s = ASSUMED["visit_s"].value + slots * slot_s
    sampling = sampling_s(work, slots, settings)
    again = sampling_s(work, slots, settings, ASSUMED["power_again_s"].value)
    kind_s, first_s = _making_s(work, kind)
    first_s += ASSUMED["start_s"].value if work.renews else 0.0
    return Price(kind_s, first_s, beside_s, sampling, again if is_bound_by_power(work) else None)


def slots_of(work: PricedWork, cache_byte: int, settings: Protocol) -> int:
    """Sets of tensors that a cold ring holds (bench/worker/cache_ring.py), memory permitting."""
    if not work.cold or not work.byte:
        return 1
    return settings.ring_slots(cache_byte, work.byte)


def _making_s(work: PricedWork, kind: DeviceKind) -> tuple[float, float]:
    """Seconds of compiling and tuning (once for its kind, once for the case): libraries have neither."""
    if work.implementation.startswith("inductor"):
        return 0.0, ASSUMED["max_autotune_s" if work.autotunes and kind == "cuda" else "inductor_s"].value
    if not work.implementation.startswith("triton"):
        return 0.0, 0.0
    if not work.chooses or re.fullmatch(r"triton-\d+x\d+", work.implementation):  # held to one tile
        return ASSUMED["program_s"].value, 0.0
    question = "product_question_s" if work.multiplies else "question_s"
    return ASSUMED["first_question_s"].value, ASSUMED[question].value


def is_bound_by_power(work: PricedWork) -> bool:
    """Whether its launches bring the device to its power limit, so that the clock takes seconds to settle."""
    return work.launch_s is not None and work.flop_s > ASSUMED["power_share"].value * work.launch_s


def sampling_s(
    work: PricedWork, slots: int, settings: Protocol, power_settle_s: float = ASSUMED["power_settle_s"].value
) -> float:
    """Seconds of settling and sampling on a GPU, for a quiet case, which stops as early as possible."""
    launch_s = work.launch_s or ASSUMED["launch_s"].value
    sample_s = max(settings.least_sample_s, slots * launch_s)  # a graph covers all of the ring
    timed_s = max(settings.least_timed_s, settings.least_samples * sample_s)
    windows_s = settings.settle_windows * max(settings.settle_window_s, sample_s)
    if settings.light_window_s is None:
        return min(windows_s, settings.settle_most_s) + timed_s
    settle_s = max(settings.light_window_s, sample_s)
    if is_bound_by_power(work):
        settle_s += max(power_settle_s, windows_s)
    return min(settle_s, settings.settle_most_s) + timed_s


class LearnedPrices:
    """Seconds that visits took relative to their expectation, by kind of visit.

    A kind with few visits is taken to be like all visits so far: if the first hundred cost twice as much as
    expected, so will visits of a kind that has not been seen.
    """

    def __init__(self) -> None:
        self._all: deque[tuple[float, float]] = deque(maxlen=REMEMBERED)
        self._by_kind: dict[Hashable, deque[tuple[float, float]]] = {}

    def visited(self, kind: Hashable, expected_s: float, taken_s: float) -> None:
        """Add a visit of this kind; `expected_s` is its price before anything was learned."""
        pair = expected_s, max(0.0, taken_s)
        self._all.append(pair)
        self._by_kind.setdefault(kind, deque(maxlen=REMEMBERED)).append(pair)

    def shares(self) -> Callable[[Hashable], float]:
        """Kind of visit -> the present factor on its price: seconds taken / seconds expected."""
        overall = _share(self._all, 1.0)
        by_kind = {kind: _share(pairs, overall) for kind, pairs in self._by_kind.items()}
        return lambda kind: by_kind.get(kind, overall)


def _share(pairs: deque[tuple[float, float]], prior: float) -> float:
    """Taken / expected over these visits and PRIOR_VISITS more that took `prior` times as expected."""
    expected_s = sum(expected for expected, _ in pairs)
    if not expected_s:
        return prior
    weight_s = PRIOR_VISITS * expected_s / len(pairs)
    return (prior * weight_s + sum(taken for _, taken in pairs)) / (weight_s + expected_s)
