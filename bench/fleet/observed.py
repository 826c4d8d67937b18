"""Result files -> the units of a fleet and their times, a row for each run of each case on each unit.

A unit is one GPU, or one host where a CPU was measured. Its node is the host, or what the tag `node` says,
and its slot the PCI address. Only units of one kind (one device slug) are ever compared, and only in
cases that were measured under the same protocol.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from bench.case_name import row_name
from bench.errors import UserError
from bench.format import count_text
from bench.judge.work_class import LEAST_INTENSITY, WorkClass
from bench.store import parquet

EXPECTED = "expected.txt"
"""The file in a folder of results that lists the expected nodes: `node017`, or `node017 8` (units)."""
CASE = (
    "sweep", "implementation", "parameters", "cache", "threads_asked", "protocol", "regime", "clock", "fill",
)  # fmt: skip
"""Columns that are equal where times of two units can be compared."""
_COLUMNS = (
    "device", "device_kind", "device_id", "run_id", "utc", "host", "pci_bus", "gpu_uuid", "serial", "tags",
    "source", "measured_in", "operator", "arithmetic", "dtype", "status", "median_s",
    "flop", "byte", "concurrent_gpus", *CASE,
)  # fmt: skip
_TOLD = ["unit", "kind", "case", "status", "class", "together", "utc", "log_s", "name"]


@dataclass(frozen=True)
class Unit:
    """One GPU, or one host of a fleet of CPUs."""

    id: str
    """Hash of the GPU's UUID, or of the host (with its node's name, of a CPU)."""
    kind: str
    """Slug of the device."""
    node: str
    """What the tag `node` says, else the host; `unknown-` and its id, its own node, if neither is known."""
    slot: str
    """PCI address; empty on a CPU."""
    uuid: str
    """The GPU's UUID; empty on a CPU."""
    serial: str
    """Serial number of the board; empty if it tells none."""
    tags: Mapping[str, str]
    """What ROOFBENCH_TAGS said in its newest run: rack, cooling ..."""

    @property
    def name(self) -> str:
        """`node017 0000:1b:00.0`, or the node alone where a unit has no slot."""
        return f"{self.node} {self.slot}".strip()


@dataclass(frozen=True)
class Fleet:
    """Units, and what was measured on them."""

    units: Mapping[str, Unit]
    """Unit by its id."""
    times: pd.DataFrame
    """A row for each case of each run that has a time, or should have one.

    Columns: unit, kind, case (equal on all units that can be compared), status, class (a WorkClass), together
    (whether other GPUs of the node were timed at the same time), utc, log_s (ln of the median seconds, NaN of
    what failed), name (of what failed: the case's, for people).
    """
    left_out: Sequence[str]
    """A sentence for each file that could not be read."""
    expected: Mapping[str, int | None]
    """Node that there should be -> how many units it has; None if nobody said."""

    @property
    def kinds(self) -> dict[str, int]:
        """Kind of device -> how many units, the most frequent first."""
        return dict(Counter(unit.kind for unit in self.units.values()).most_common())


def read(paths: Sequence[Path]) -> Fleet:
    """The fleet in these result files, or folders of them.

    `expected.txt` in the folders, if there is one, has the nodes there should be. Damaged files are left out
    with a sentence. UserError if no file can be read or the list cannot.
    """
    left_out: list[str] = []
    tables = [table for _, table in parquet.tables(paths, left_out.append, _COLUMNS, own=True)]
    rows = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    frame: pd.DataFrame = rows.to_pandas(use_threads=False, strings_to_categorical=True)
    # Imported: nobody's unit that could be looked after. Of another run: it is there, too.
    frame = frame[frame["source"].isna() & frame["measured_in"].isna()]
    frame = frame.astype({"utc": str, "run_id": str})  # a categorical sorts by first appearance, not by time
    tags, host, unit = (frame[name].astype(object) for name in ("tags", "host", "device_id"))
    named = tags.map(lambda text: _tags(text).get("node"), na_action="ignore")
    node = named.where(named.notna(), host)
    node = node.where(node.notna(), "unknown-" + unit)
    # Two nodes that share a host, as containers do, are two units of a CPU.
    unit = unit.where(frame["device_kind"] != "cpu", unit + "-" + node)
    frame = frame.assign(node=node, unit=unit).rename(columns={"device": "kind"})
    # Equal where times can be compared: sweep, implementation, parameters, and how they were measured.
    frame["case"] = ["\n".join(map(str, row)) for row in frame[list(CASE)].to_numpy()]
    frame["class"] = class_of(frame)
    frame["together"] = frame["concurrent_gpus"].fillna(1) > 1
    frame["log_s"] = np.log(frame["median_s"].where(frame["status"] == "ok"))
    frame = frame[~frame["status"].isin(["unsupported", "skipped"])].reset_index(drop=True)
    failed = frame[frame["log_s"].isna()].astype(object)
    names = [row_name(row) for row in failed.where(failed.notna(), None).itertuples()]
    frame["name"] = pd.Series(names, failed.index, dtype=object)
    return Fleet(_units(frame), frame[_TOLD], left_out, _expected(paths))


def newest(times: pd.DataFrame) -> pd.DataFrame:
    """The newest row of each case of each unit, alone and together."""
    return times.sort_values("utc", kind="stable").drop_duplicates(["unit", "case", "together"], keep="last")


def missing(fleet: Fleet) -> Iterator[str]:
    """A sentence for each node that was expected and gave nothing, or fewer units than it has.

    Where nobody said how many units a node has, it has the slots that most nodes of its kind have, the more
    if in doubt.
    """
    nodes: dict[str, set[str]] = {}
    kinds: dict[str, str] = {}
    for unit in fleet.units.values():
        nodes.setdefault(unit.node, set()).add(unit.slot)
        kinds[unit.node] = unit.kind
    for node in sorted(fleet.expected.keys() | nodes.keys(), key=natural):
        count, there = fleet.expected.get(node), nodes.get(node)
        if there is None:
            yield f"MISSING {node}" + (f" ({count_text(count, 'unit')})" if count else "")
            continue
        alike = Counter(frozenset(nodes[other]) for other in nodes if kinds[other] == kinds[node])
        usual = max(alike, key=lambda slots: (alike[slots], len(slots), sorted(slots)))
        total, lacking = count or max(len(usual), len(there)), sorted(usual - there)
        if len(there) < total:
            which = f" ({', '.join(lacking)})" if len(lacking) == total - len(there) else ""
            yield f"MISSING {node}: {total - len(there)} of {count_text(total, 'unit')}{which}"


def natural(name: str) -> list[tuple[int, str]]:
    """A key that puts node9 before node10."""
    return [(int(part) if part.isdigit() else -1, part) for part in re.split(r"(\d+)", name)]


def _expected(paths: Sequence[Path]) -> dict[str, int | None]:
    nodes: dict[str, int | None] = {}
    for file in sorted({each for path in paths if path.is_dir() for each in path.rglob(EXPECTED)}):
        try:
            lines = file.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{file}: the list of expected nodes cannot be read: {error}") from error
        for number, line in enumerate(lines, 1):
            words = line.partition("#")[0].strip()
            found = re.fullmatch(r"(\S+)(?:\s+0*([1-9]\d*))?", words)
            if words and not found:
                give = "give a node's name, or its name and its number of units"
                raise UserError(f"{file}:{number}: {line.strip()!r}: {give}")
            if found:
                nodes[found[1]] = int(found[2]) if found[2] else nodes.get(found[1])
    return nodes


@cache
def _tags(text: str) -> dict[str, str]:
    return {str(key): str(value) for key, value in json.loads(text or "{}").items()}


def class_of(rows: pd.DataFrame) -> pd.Series:
    """The kind of work of each row, by its columns operator, cache, arithmetic, flop and byte.

    Not by its time, as `work_of` does it: a slow unit must not do another kind of work than the others.
    """
    intense = (rows["arithmetic"] != "vector") & (rows["flop"] >= LEAST_INTENSITY["cuda"] * rows["byte"])
    classes = np.select(
        [rows["operator"] == "launch", rows["operator"] == "transfer", rows["cache"] == "warm", intense],
        [WorkClass.LAUNCH.value, WorkClass.TRANSFER.value, WorkClass.CACHE.value, WorkClass.COMPUTE.value],
        WorkClass.MEMORY.value,
    )
    return pd.Series(classes, index=rows.index, dtype=object)


def _units(frame: pd.DataFrame) -> dict[str, Unit]:
    """The units, each as its newest run describes it."""
    last = frame.sort_values("utc", kind="stable").drop_duplicates("unit", keep="last")
    facts = ["unit", "kind", "node", "pci_bus", "gpu_uuid", "serial", "tags"]
    units: dict[str, Unit] = {}
    for unit, kind, node, slot, uuid, serial, tags in last[facts].astype(object).fillna("").to_numpy():
        others = {key: value for key, value in _tags(tags).items() if key != "node"}
        units[unit] = Unit(unit, kind, node, slot, uuid, serial, others)
    return units
