"""Rows of a run: one for each visit, joined into one for each case.

A journal holds a row for each visit; a result file holds a row for each case. It publishes the median over
all visits that the machine did not disturb (bench/sampling/publish.py: `publish`). The others are
named in the row (`set_aside`), with their medians. How other columns are joined is declared with each of them
(`over` in bench/store/schema.py).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from itertools import product, starmap
from typing import Any, cast, get_args

from bench.device.detect import Device
from bench.judge.flags import disturbances
from bench.judge.noise import history, published
from bench.judge.within_run import within_run
from bench.sampling.protocol import REGIME, Protocol, protocol
from bench.sampling.publish import VisitSamples, publish, publish_ceiling, settled_ones
from bench.spec import DeviceKind, parameters_text
from bench.store.schema import FIELDS, Measurement, Over
from bench.sweep.load import Case

SEED = 20_231_115
"""Seed of the inputs and of the order of visits."""
MAX_VISITS = 9
"""The most visits that can be requested."""
INVALID = ("wrong", "escaped", "error")
"""Statuses of a visit that make all visits of its case invalid."""


# ---- one visit


def visit_row(case: Case, device: Device, protocol: Protocol, facts: Mapping[str, Any]) -> Measurement:
    """The row of one visit. `facts` are its other columns; TypeError names one that is no column."""
    problem, name = case.problem, case.implementation
    values: dict[str, Any] = {
        **dict.fromkeys(("torch", "triton", "libraries", "clock", "fill"), ""),
        "seed": SEED,
        "utc": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "device": device.slug,
        "device_name": device.name,
        "device_kind": device.kind,
        "device_id": device.id,
        "sm_count": device.sm_count,
        "cache_byte": device.cache_byte,
        "driver": device.driver,
        "boot": device.boot or None,
        "protocol": protocol.hash,
        "protocol_version": protocol.version,
        "regime": REGIME,
        "sweep": case.sweep,
        "role": case.role,
        "parameters": parameters_text(problem.parameters()),
        "cache": case.cache,
        "threads_asked": case.threads,
        **problem.facts(name),
    }
    return Measurement(**{**values, **facts})


# ---- one case


def joined(rows: Iterable[Measurement], earlier: Iterable[Iterable[Measurement]] = ()) -> list[Measurement]:
    """One row for each case, in the order of their first visits.

    `earlier` are the rows of earlier runs of the device, in time order: they tell how far its runs differ.
    """
    every = list(rows)
    by_case: dict[str, list[Measurement]] = {}
    for row in every:
        by_case.setdefault(row.case, []).append(row)
    before = [list(run) for run in earlier]
    # What a neighbour did to an earlier run is no noise of this one, unless no run was without.
    sound = [[row for row in run if not disturbances(row)] for run in before]
    differ = history(sound if any(sound) else before)
    rows = [join(visits) for visits in by_case.values()]
    return [published(row, within, differ) for row, within in zip(rows, within_run(rows), strict=True)]


def join(visits: Sequence[Measurement]) -> Measurement:
    """The row of a case from the rows of its visits, in order; at least one.

    Its interval is what the visits themselves tell; `joined` adds what the run knows of the noise.

    One visit with a wrong result makes the case wrong. Visits that crashed, or ran out of time or memory, are
    set aside; earlier ones keep their time.
    """
    for row in visits:
        if row.status in INVALID:
            return replace(row, visit=0)
    timed = [row for row in visits if row.status == "ok" and row.samples_s]
    if not timed:
        return replace(visits[-1], visit=0)
    alike = [row for row in timed if (row.clock, row.protocol) == (timed[-1].clock, timed[-1].protocol)]
    sound = [row for row in alike if not disturbances(row)] or alike
    settings = protocol_of(timed[-1].protocol)
    kept, said = sound, None
    if settings is None:  # of another version of the protocol: its row is kept as it is
        kept = sound[-1:]
    else:
        looks = [_samples(row) for row in sound]
        taken = settled_ones(looks, settings, timed[0].device_kind)
        kept = [sound[index] for index in taken]
        publishing = publish if timed[0].role == "measurement" else publish_ceiling
        said = publishing([looks[index] for index in taken], settings)
    aside = [(_why_not(row, kept, alike), row) for row in visits if row not in kept]
    values: dict[str, Any] = {name: _over(name, kept, visits) for name in FIELDS}
    if said is not None:
        values |= said.columns()
    values |= {
        "visit": 0,
        "status": "ok",
        "reason": "",
        "visits": len(kept),
        "samples_s": [sample for row in kept for sample in row.samples_s or []],
        "visit_samples": [len(row.samples_s or []) for row in kept],
        "visit_at_s": [at for row in kept for at in row.visit_at_s or []] or None,
        "set_aside": [why for why, _ in aside] or None,
        "set_aside_s": [math.nan if row.median_s is None else row.median_s for _, row in aside] or None,
    }
    return replace(kept[0], **values)


def _samples(row: Measurement) -> VisitSamples:
    return VisitSamples(
        samples_s=tuple(row.samples_s or ()),
        settled=bool(row.settled),
        settle_s=row.settle_s or 0.0,
        stop=cast(Any, row.stop),
        step_s=row.step_s or 0.0,
    )


def _why_not(row: Measurement, kept: Sequence[Measurement], alike: Sequence[Measurement]) -> str:
    """Why this visit is not published."""
    if row.status != "ok":
        return f"{row.status}: {row.reason}"
    if row not in alike:
        return f"timed by the {row.clock} clock" if row.clock != kept[0].clock else "another protocol"
    return ", ".join(disturbances(row)) or ("earlier" if row.settled else "unsettled")


_JOIN: Mapping[Over, Callable[[list[Any]], Any]] = {
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "least": min,
    "middle": lambda values: sorted(values)[(len(values) - 1) // 2],
    "most": max,
    "mean": statistics.fmean,
    "sum": sum,
    "every": lambda values: ", ".join(dict.fromkeys(v for v in values if v)),
}


def _over(name: str, kept: Sequence[Measurement], visits: Sequence[Measurement]) -> Any:
    """One column joined over the published visits; sums include the visits that are set aside."""
    how: Over = FIELDS[name].metadata["over"]
    values = [getattr(row, name) for row in (visits if how == "sum" else kept)]
    known = [value for value in values if value is not None]
    if not known or (name == "energy_j" and len(known) < len(values)):  # part of a sum is no sum
        return None
    return _JOIN[how](known)


@cache
def protocol_of(of_hash: str) -> Protocol | None:
    """The protocol of this hash; None if this version cannot run it."""
    every = starmap(protocol, product(get_args(DeviceKind), range(1, MAX_VISITS + 1)))
    return next((settings for settings in every if settings.hash == of_hash), None)
