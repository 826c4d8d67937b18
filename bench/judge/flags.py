"""What one row's number may not be used for without a second look: flags, each with its one rule.

A flag never changes or hides a time; a row that was off the processor for a quarter of it or more has none.
A row without a time says why itself; of those only the ones whose result was no good are flagged. Every rule
is a function of the row, and of the ceilings of its run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bench.device.datasheet import find_datasheet
from bench.format import NOT_MEASURABLE, share_text
from bench.judge.noise import is_published, usual_half
from bench.model.ceilings import Ceilings
from bench.model.roofline import WITHOUT_ROOF, calibrated_row, datasheet_s, of_roof, row_traffic
from bench.sampling.publish import MODERATED, median_of
from bench.store.schema import Measurement

NOISY = 0.02
"""Half-width of a 95 % interval, as a share of the median, that is never too large ..."""
NOISY_BESIDE = 2.0
"""... nor is one that is not so many times as wide as the noise of the run makes such a row."""
DRIFTING = 0.02
"""Largest change of the median from the first third of a visit's samples to the last, as a share."""
CHANCE = 0.05
"""That two thirds of the same noise are told apart by their ranks."""
ABOVE_ROOF = 1.05
"""Largest share of the calibrated roof that measuring error explains."""
BESIDE_COPY = 1.5
"""Times the bytes of a copy that a core moves at most from a cache: two loads beside a store, not one."""
LAUNCH_BOUND = 1.1
"""Times the launch floor within which a row times the launch, not the work."""
OVERHEAD = 10
"""Times the overhead below which an imported time that holds its launch says little of the work."""
CONTENDED = 0.05
"""Largest share of the time in which some task waited for a processor (Linux pressure stall)."""
ON_PROCESSOR = 0.95
"""Smallest share of the time that the timing thread has a processor."""
OFF_PROCESSOR = 0.75
"""Share of the time on a processor below which a time is that of the scheduler: on a committed quiet tour
copies of 0.1 to 2 ms on 50 to 63 % of the processors all "took" 8.0 ms."""
AGREE = 1.03
"""Times the quickest visit within which the others agree, as those of a CPU do that have converged."""
STOLEN = 0.02
"""Largest share of processor time that a hypervisor may take."""
HELD = 0.05
"""Largest share of the time in which heat, the hardware, a power limit, sync boost or a processor quota may
hold work back: a twentieth of the samples hardly moves a median."""
INVALID = ("wrong", "escaped")
"""Statuses of a row whose result was no good, and the flags of the same names."""


@dataclass(frozen=True)
class Flag:
    """A name, when it is raised, and what that means for the reader."""

    name: str
    rule: Callable[[Measurement, Ceilings], bool]
    means: str
    suspect: bool = True
    """Whether the time itself is suspect: shown hollow, and no score or duel rests on it."""
    explains: Callable[[Measurement], float] | None = None
    """Where the machine is to blame how far its cause may have moved the time: natural logarithm."""

    @property
    def disturbed(self) -> bool:
        """Whether the machine is to blame, not the kernel: such a visit is set aside and made again."""
        return self.explains is not None


def flags(row: Measurement, ceilings: Ceilings | None) -> list[str]:
    """Names of the flags that this row raises, in the order of FLAGS.

    A row without a time raises none, but for one whose result was `wrong` or whose launches `escaped`.
    `ceilings` are what the row is compared with; None leaves out the flags that need them.
    """
    applicable = FLAGS if row.is_timed else (flag for flag in FLAGS if flag.name in INVALID)
    known = ceilings or Ceilings()
    return [flag.name for flag in applicable if flag.rule(row, known)]


def disturbances(row: Measurement) -> list[str]:
    """Names of the flags of a visit that blame the machine: reasons to set it aside and make another.

    A state that lasts (a partitioned GPU, a quota, a neighbour who stays) is named on every visit.
    """
    if row.status != "ok":
        return []
    return [flag.name for flag in FLAGS if flag.disturbed and flag.rule(row, Ceilings())]


def waited_share(row: Measurement) -> float:
    """Share of the time in which work waited for a processor: the largest of the shares that say so."""
    shares = (row.pressure, None if row.on_processor is None else 1 - row.on_processor, row.steal)
    return max((share for share in shares if share is not None), default=0.0)


def measurable(row: Measurement) -> Measurement:
    """The row, or without a time, as one that was skipped, if it was off the processor for too long."""
    if not row.is_timed or row.device_kind != "cpu" or not _below(row.on_processor, OFF_PROCESSOR):
        return row
    had = share_text(1 - (row.on_processor or 0.0))
    reason = f"{NOT_MEASURABLE}: off the processor, which others had, for {had} of the time"
    return replace(row, status="skipped", reason=reason, median_s=None, low_s=None, high_s=None)


def again_timed(row: Measurement) -> Measurement:
    """The row with the time that `measurable` took, if another run's may be compared with it.

    That is of a single thread whose visits agree: how much it lost it tells itself.
    """
    visits_s = [median_of(part) for part in row.visit_samples_s]
    alone = row.threads == 1 and row.reason.startswith(NOT_MEASURABLE) and len(visits_s) > 1
    if not alone or max(visits_s) > AGREE * min(visits_s):
        return row
    return replace(row, status="ok", reason="", median_s=median_of(row.samples_s or ()))


def _above(value: float | None, bar: float) -> bool:
    """Whether there is a value and it is beyond the bar."""
    return value is not None and value > bar


def _below(value: float | None, bar: float) -> bool:
    return value is not None and value < bar


def explained(row: Measurement, names: Iterable[str]) -> float:
    """How far the causes of these flags may have moved the row's time: natural logarithm, 0 or more."""
    return max((flag.explains(row) for flag in FLAGS if flag.explains and flag.name in names), default=0.0)


def _noisy(row: Measurement, _: Ceilings) -> bool:
    if row.median_s is None or row.low_s is None or row.high_s is None:
        return False
    bar = NOISY_BESIDE * usual_half(row)
    if is_published(row):  # what other people's runs differ by excuses no scatter of this one
        bar = math.hypot(NOISY, usual_half(row))
    return (row.high_s - row.low_s) / 2 > max(NOISY, bar) * row.median_s


def _unsettled(row: Measurement, _: Ceilings) -> bool:
    """Of a CPU visits far apart tell a row better than the windows before each.

    In six tours (`python -m studies.noise_by_kind results/reference/tours`) cases whose visits had not
    settled differed no more than the others: matrix multiplications by 5.8 against 6.1 %, memory by 8.7 and
    8.3 % (median).
    """
    return row.settled is False and (row.device_kind != "cpu" or (row.visits or 1) < MODERATED)


def _drifts(samples_s: npt.NDArray[np.float64]) -> bool:
    """Whether the last third is another than the first: by more than the bar, and than chance explains.

    Chance by the rank-sum test of Wilcoxon, Mann and Whitney, which takes long: only where medians differ.
    """
    n = samples_s.size // 3
    if not n:
        return False
    first, last = samples_s[:n], samples_s[-n:]
    low, high = sorted(map(median_of, (first, last)))
    if high - low <= DRIFTING * low:
        return False
    from scipy import stats  # slow to import, and few rows need it

    return bool(stats.mannwhitneyu(first, last, method="asymptotic").pvalue < CHANCE)


def _above_roof(row: Measurement, ceilings: Ceilings) -> bool:
    return _above(of_roof(row.median_s, _least_s(row, ceilings)), ABOVE_ROOF)


def surely_above_roof(row: Measurement, ceilings: Ceilings, slow_s: float) -> bool:
    """Whether its slow end is above the high end of its roof: the noise of the run is no excuse."""
    return _above(of_roof(slow_s, _least_s(row, ceilings.quickest)), ABOVE_ROOF)


def _least_s(row: Measurement, ceilings: Ceilings) -> float | None:
    """Seconds below which no launch of this can be; None if nothing that is known bounds it.

    From memory by the ceilings of its run. From a warm cache by the highest arithmetic peak, and by the
    cache's copies of as many bytes. Without such ceilings the datasheet bounds it.
    """
    cold = row.cache == "cold"
    # The peak of an imported run is that of the best of the very rows that are judged.
    if row.arithmetic in WITHOUT_ROOF or (row.source is not None and not cold):
        return None
    if cold and (roof := calibrated_row(row, ceilings)):
        return roof.lower_bound_s
    bounds = []
    if peak := ceilings.quickest.peak(row.arithmetic, row.dtype):
        bounds.append(row.flop / peak)
    held = row.ring_byte or row.byte
    if not cold and ceilings.cached and held >= min(ceilings.cached):
        rate = float(np.asarray(ceilings.cached_byte_per_s(held)))
        bounds.append(row.byte_moved / (rate * BESIDE_COPY))
    if row.source is None:  # an import has set aside what is above it
        sheet = find_datasheet(row.device_name)
        bounds.append(
            datasheet_s(row.flop, row_traffic(row)[0] if cold else 0.0, row.arithmetic, row.dtype, sheet)
            or 0.0
        )
    return max(bounds, default=None)


def _launch_bound(row: Measurement, ceilings: Ceilings) -> bool:
    if row.median_s is None:
        return False
    # Launches that a graph replays, or that a host calls in turn, were queued outside of the time.
    if row.clock == "stream" and _above(row.enqueue_s, row.median_s):
        return True
    return ceilings.launch_s is not None and row.median_s <= LAUNCH_BOUND * ceilings.launch_s


def _waited(row: Measurement) -> float:
    """What waiting for a processor may have added: of a single thread what it lost, whoever else waited.

    Of several, each launch waits for the last: without end where the timing thread waited for most of it, and
    a launch took the scheduler's slices.
    """
    if row.threads == 1 and row.on_processor is not None:
        return _lengthened(1 - row.on_processor * (1 - (row.steal or 0.0)))
    return math.inf if _below(row.on_processor, OFF_PROCESSOR) else _lengthened(waited_share(row))


def _held(row: Measurement) -> float:
    """What a lower clock may have added while it was held: at most half of it is lost."""
    shares = (row.held_thermal, row.held_hardware, row.held_sync, row.held_power, row.throttled)
    # Where no counter says for how long, all of the time.
    return _lengthened(0.5 * (max(share or 0.0 for share in shares) or 1.0))


def _shared(row: Measurement) -> float:
    """What other processes may have added: each took as much of the GPU as the one that was timed.

    Those on other slices of a partitioned GPU (MIG) cannot be counted: one at least is assumed.
    """
    return math.log1p(max(row.foreign_processes or 0, 1 if row.mig == "on" else 0))


def _lengthened(lost: float) -> float:
    """ln of how much longer work takes of which this share of the time is lost."""
    return -math.log1p(-min(max(lost, 0.0), 0.9))


def _hot(row: Measurement) -> bool:
    """Whether heat, the hardware, sync boost or a quota held the device: anything but the power limit."""
    shares = (row.held_thermal, row.held_hardware, row.held_sync, row.throttled)
    # Counters lag by up to a second: what is seen at the end counts, too.
    seen = any(word in (row.limit_reasons or "") for word in ("hardware", "thermal"))
    return seen or any(_above(share, HELD) for share in shares)


def _at_power_limit(row: Measurement) -> bool:
    if row.held_power is not None:
        return row.held_power > HELD
    return "software power cap" in (row.limit_reasons or "")  # no counter: what was seen at the end


def _throttled(row: Measurement, _: Ceilings) -> bool:
    # A burst that meets the power limit is no burst at the boost clock.
    return _hot(row) or (row.regime == "boost" and _at_power_limit(row))


FLAGS = (
    Flag(
        "noisy",
        _noisy,
        "its interval is wider than ±2 %, and more than twice as wide as the noise of the run explains",
    ),
    Flag(
        "unconverged",
        lambda row, _: row.stop not in (None, "converged"),
        "the budget ended before the interval was narrow; the interval holds",
        suspect=False,
    ),
    Flag("unsettled", _unsettled, "the speed still drifted when sampling began"),
    Flag(
        "drifting",
        lambda row, _: any(map(_drifts, row.visit_samples_s)),
        "the last third of a visit's samples differs from the first by over 2 %, and not by chance",
        suspect=False,
    ),
    Flag("above_roof", _above_roof, "over 105 % of the roof: the FLOP, bytes, cache or roof is wrong"),
    Flag(
        "launch_bound",
        _launch_bound,
        "within 1.1 times an empty launch, or queued more slowly than it ran: the launch was timed",
        suspect=False,
    ),
    Flag(
        "overhead",
        lambda row, _: row.source is not None and _below(row.median_s, OVERHEAD * (row.clock_start_s or 0.0)),
        "imported, and less than 10 times the launch that its time includes: it says little of the work",
    ),
    Flag(
        "contended",
        lambda row, _: _above(row.pressure, CONTENDED) or _below(row.on_processor, ON_PROCESSOR),
        "tasks waited for a processor over 5 % of the time, or the timing thread did (CPU)",
        explains=_waited,
    ),
    Flag(
        "stolen",
        lambda row, _: _above(row.steal, STOLEN),
        "the hypervisor took over 2 % of the processors (CPU)",
        explains=_waited,
    ),
    Flag(
        "shared",
        lambda row, _: _above(row.foreign_processes, 0) or row.mig == "on",
        "another process had the GPU too, or it is partitioned (MIG)",
        explains=_shared,
    ),
    Flag(
        "throttled",
        _throttled,
        "heat or hardware held the clock over 5 % of the time, or a quota did; in bursts power too",
        explains=_held,
    ),
    Flag(
        "power_capped",
        lambda row, ceilings: _at_power_limit(row) and not _throttled(row, ceilings),
        "the power limit alone held the clock: this is the card's sustained speed",
        suspect=False,
    ),
    Flag("wrong", lambda row, _: row.status == "wrong", "float64 does not confirm the result: no time"),
    Flag("escaped", lambda row, _: row.status == "escaped", "timed launches did not do the work: no time"),
)
"""Every flag there is."""
SUSPECT = frozenset(flag.name for flag in FLAGS if flag.suspect)
"""Flags of a row that figures show hollow, and that no score, duel or roof rests on."""
