"""`python -m bench ceilings`: what a run's probes measured, and the two calibrations made from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from bench.device.datasheet import find_datasheet
from bench.errors import UserError
from bench.format import amount_text, ends_text, share_text
from bench.judge.frame import DeviceRun, known_runs
from bench.model.calibrated_runs import Known


def ceilings_lines(runs: Sequence[DeviceRun]) -> Iterator[str]:
    """The ceilings of each device, run and condition with 95 % intervals, and the calibrations of a GPU.

    UserError if no row is a ceiling.
    """
    if not any(run.measured_ceilings for run in runs):
        raise UserError("no row among these is a ceiling: sweeps/ceilings run with every measurement")
    for run in runs:
        calibrated = {of.ceilings.condition: of for of in known_runs([run], find_datasheet)}
        for condition, ceilings in sorted(run.measured_ceilings.items()):
            yield f"{run.device} {run.name}: {condition}"
            for ceiling in ceilings.listed():
                value = amount_text(ceiling.value, ceiling.unit)
                interval = ends_text(ceiling.low, ceiling.high, ceiling.unit)
                yield f"  {ceiling.name:<40} {value:>14}   {interval}"
            if condition in calibrated:
                yield from _calibration_lines(calibrated[condition])


def _calibration_lines(of: Known) -> Iterator[str]:
    plain, *fitted = of.calibrations
    whose = f", imported: {of.imported.partition(';')[0]}" if of.imported else ""
    yield f"  calibrations of matrix multiplications, {plain.dtype}{whose}"
    fit = "no fit: too few of its shapes"
    if fitted:
        fit = f"fitted to {fitted[0].shapes} shapes, to which it is off by {share_text(fitted[0].error, 1)}"
    yield f"  {'':<40} {'no fit':>14}   {fit}"
    machines = [asdict(calibration.machine) for calibration in of.calibrations]
    for name in machines[0]:
        texts = [_number(name, machine[name]) for machine in machines]
        yield f"  {name:<40} {texts[0]:>14}" + "".join(f"   {text}" for text in texts[1:])
    for calibration in of.calibrations:
        if errors := of.errors(calibration):
            which = "fitted" if calibration.fitted else "no fit"
            yield (
                f"  {which}: off by {share_text(errors.mape, 1)} on average on {errors.n} "
                f"matrix multiplications that calibrate nothing, median {share_text(errors.median, 1)}"
            )


def _number(name: str, value: float) -> str:
    for ending, unit in (("_byte_per_s", "byte/s"), ("flop_per_s", "FLOP/s"), ("_s", "s")):
        if name.endswith(ending) or name == ending.strip("_"):
            return amount_text(value, unit)
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.3g}"
