"""`python -m bench compare A B C... --across device`: what each device gains over the first one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import pandas as pd

from bench.cli.table import table_lines
from bench.device.datasheet import find_datasheet, gpu_named
from bench.errors import UserError
from bench.format import count_text
from bench.judge.comparability import FACTS, WITH_DEVICE, value
from bench.judge.frame import DeviceRun, load
from bench.judge.speedup import Gain, gains, speedups
from bench.model.bound import bound_text

COLUMNS = (">cases", ">median", ">80 % of them", ">stated")
"""Numbers of each device."""
UNKNOWN = "not known"
MOST_NAMED = 3
"""Devices that are named with a fact; more are counted."""


class Across:
    """The runs of several devices. The first device of the first result is the base."""

    def __init__(self, runs: Sequence[DeviceRun]) -> None:
        """UserError for fewer than two devices."""
        self.runs = runs
        self.sheets = {run.device: run.datasheet for run in self.runs}
        if len(self.sheets) < 2:
            (only,) = self.sheets
            raise UserError(f"--across device: all rows are of {only}; give results of two devices or more")
        self.base = next(iter(self.sheets))
        self.names = {device: of.slug if (of := gpu_named(device)) else device for device in self.sheets}
        """Folder of a device's results -> `h100_sxm5`, the name by which `--on` has it."""
        self.rows = pd.concat([run.rated for run in self.runs], ignore_index=True)
        self.gains = gains(dict(speedups(self.rows, self.base)), self.base, self.sheets)

    @classmethod
    def read(cls, results: Sequence[Path], left_out: Callable[[str], object]) -> Across:
        """The comparison of these files; `left_out` is called with those that cannot be read."""
        return cls([run for result in results for run in load([result], find_datasheet, left_out)])

    def lines(self) -> Iterator[str]:
        """The report."""
        devices = {gain.device: None for gain in self.gains}
        of, base = (
            f" of {self.names[next(iter(devices))]}" if len(devices) == 1 else "",
            self.names[self.base],
        )
        yield from (f"Speed{of} relative to {base}", "")
        yield (
            f"2.00 is twice as fast: the seconds of {base} over those of the device, for each case that "
            "both measured, by the fastest library that both have. What bounds a case follows from the ridge "
            f"and the launch overhead of {base}. Stated is what the datasheets promise: the ratio of "
            "bandwidths where memory bounds a case, of peaks where compute does."
        )
        yield ""
        yield from _tables(self.gains, self.names)
        for device in self.sheets:
            if device not in devices and device != self.base:
                yield f"{self.names[device]} has no sound case in common with {base}."
        if missing := [device for device, sheet in self.sheets.items() if sheet is None]:
            yield f"No datasheet is known of {', '.join(missing)}."
        if differing := list(self.differing()):
            yield from ("", "Facts that differ besides the device, so that ratios hold them too:", *differing)

    def differing(self) -> Iterator[str]:
        """`driver: 550.1 (nvidia-a100); 560.2 (2 devices)` for each fact that is not the device's own."""
        for fact in FACTS:
            if fact.name in ("device", *WITH_DEVICE):
                continue
            texts: dict[str, set[str]] = {}
            for run in self.runs:
                if run.rows[0].device_kind in fact.kinds:
                    of_run = {value(row, fact) for row in run.rows if row.is_timed}
                    texts.setdefault(run.device, set()).update(text for text in of_run if text)
            devices: dict[str, list[str]] = {}
            for device, of_device in texts.items():
                devices.setdefault(" / ".join(sorted(of_device)) or UNKNOWN, []).append(self.names[device])
            if len(devices) > 1:
                yield f"{fact.name}: " + "; ".join(
                    f"{text} ({', '.join(of) if len(of) <= MOST_NAMED else count_text(len(of), 'device')})"
                    for text, of in devices.items()
                )


def _cells(gain: Gain) -> list[str]:
    stated = f"{gain.stated:.2f}" if gain.stated is not None else ""
    return [str(gain.cases), f"{gain.median:.2f}", f"{gain.low:.2f} to {gain.high:.2f}", stated]


def _places(gain: Gain) -> tuple[str, str, str]:
    return gain.operator, gain.dtype, gain.bound_by


def _tables(gained: Sequence[Gain], names: Mapping[str, str]) -> Iterator[str]:
    """A table for each operator and what bounds its cases."""
    for (operator, dtype, bound_by), alike in groupby(gained, _places):
        rows = [(names[gain.device], *_cells(gain)) for gain in alike]
        yield from table_lines((f"{operator} in {dtype}, {bound_text(bound_by)}", *COLUMNS), rows)
