"""A device that nobody here has: another's calibration, scaled by what the two datasheets say.

Peak by peak, bandwidth by bandwidth, each SM's share by the share of an SM; SMs and cache are the device's
own. What a launch, a tile and a split cost on top of their work stays as it was measured: no datasheet knows.
How far off that is was measured between devices that have public timings: docs/predictions.md.
"""

from __future__ import annotations

from dataclasses import replace

from bench.device.datasheet import Datasheet
from bench.errors import UserError
from bench.model.calibration import Calibration
from bench.model.ceilings import Ceiling, Ceilings


def dtype_on(dtype: str, wanted: Datasheet) -> str:
    """The type to tell a device by: float16 where it has no such peak, as Volta and Turing lack bfloat16."""
    return dtype if wanted.peak_flop_per_s("matrix", dtype) else "float16"


def transferred(calibration: Calibration, measured: Datasheet, wanted: Datasheet) -> Calibration:
    """The calibration of `measured` as it would be on `wanted`. UserError without the numbers it
    takes."""
    dtype = dtype_on(calibration.dtype, wanted)
    own = calibration.of(dtype)
    peak = _ratio("peak", dtype, measured, wanted)
    if own is None:
        lacks = f"{calibration.dtype}, which {wanted.name} lacks"
        raise UserError(f"{measured.name}: its calibration is of {lacks}, and says nothing of {dtype}")
    machine = own.machine
    memory = _ratio("bandwidth", "", measured, wanted)
    by_sm = measured.sm_count / wanted.sm_count
    scaled = replace(
        machine,
        sm_count=wanted.sm_count,
        cache_byte=wanted.l2_byte,
        flop_per_s=machine.flop_per_s * peak,
        byte_per_s=machine.byte_per_s * memory,
        cached_byte_per_s=machine.cached_byte_per_s * memory,
        sm_byte_per_s=machine.sm_byte_per_s * memory * by_sm,
        # The least step is latency, which keeps pace with what an SM multiplies.
        step_s=machine.step_s / (peak * by_sm),
    )
    peaks = {}
    for kind, per_s in calibration.peaks.items():
        before, after = (sheet.peak_flop_per_s("matrix", kind) for sheet in (measured, wanted))
        if before and after:
            peaks[kind] = per_s * after / before
    # What was learned is of the measured device; other data types' fits do not scale with this one's peak.
    return replace(calibration, machine=scaled, dtype=dtype, peaks=peaks, sample=None, others={})


def transferred_ceilings(ceilings: Ceilings, measured: Datasheet, wanted: Datasheet) -> Ceilings:
    """The ceilings of a run, scaled alike; peaks that the wanted device does not state are left out."""
    memory = _ratio("bandwidth", "", measured, wanted)
    peaks = {}
    for (unit, kind), ceiling in ceilings.peak_flop_per_s.items():
        before, after = (sheet.peak_flop_per_s(unit, kind) for sheet in (measured, wanted))
        if before and after:
            peaks[unit, kind] = _times(ceiling, after / before)
    return replace(
        ceilings,
        peak_flop_per_s=peaks,
        bandwidth_byte_per_s={s: _times(c, memory) for s, c in ceilings.bandwidth_byte_per_s.items()},
        # Working sets keep their place in the cache.
        cached={
            round(w * wanted.l2_byte / measured.l2_byte): _times(c, memory)
            for w, c in ceilings.cached.items()
        },
    )


def _ratio(what: str, dtype: str, measured: Datasheet, wanted: Datasheet) -> float:
    numbers = []
    for sheet in (measured, wanted):
        number = sheet.peak_flop_per_s("matrix", dtype) if what == "peak" else sheet.bandwidth_byte_per_s
        if not number:
            raise UserError(f"{sheet.name}: its datasheet states no {' '.join(filter(None, (what, dtype)))}")
        numbers.append(number)
    return numbers[1] / numbers[0]


def _times(ceiling: Ceiling, ratio: float) -> Ceiling:
    return replace(
        ceiling,
        per_s=ceiling.per_s * ratio,
        low_per_s=ceiling.low_per_s * ratio,
        high_per_s=ceiling.high_per_s * ratio,
    )
