"""Result files -> the units of a fleet and their times, a row for each visit of a run to a case.

A unit is one GPU, or one host where a CPU was measured. Its node is the host, or what the tag `node` says,
and its slot the PCI address. Only units of one kind (one device slug) are ever compared, and only in
cases that were measured under the same protocol.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import pyarrow as pa

from bench.case_name import row_name
from bench.errors import UserError
from bench.format import count_text
from bench.store import parquet

Class = Literal["compute", "memory", "cache", "launch", "transfer"]
"""What a case tells of a unit: its arithmetic, its memory, its caches, its start of kernels, its link."""
CLASSES: tuple[Class, ...] = get_args(Class)
COMPUTE_FLOP_PER_BYTE = 64
"""A matrix product with at least as much work per byte of operands is limited by arithmetic."""
EXPECTED = "expected.txt"
"""The file in a folder of results that lists the expected nodes: `node017`, or `node017 8` (units)."""
STATE = (
    "sm_clock_hz", "memory_clock_hz", "power_w", "temperature_c", "held_power", "held_thermal",
    "held_hardware", "foreign_processes", "pressure", "steal",
)  # fmt: skip
"""State of the unit while it was timed, as in bench/store/schema.py."""
SETTINGS = (
    "driver", "torch", "libraries", "power_limit_w", "ecc", "mig", "persistence", "governor",
    "pcie_generation", "pcie_width",
)  # fmt: skip
"""What is set or installed on a unit and may make it differ from the others."""
_CASE = ("sweep", "implementation", "parameters", "cache", "threads_asked")
_PROTOCOL = ("protocol", "regime", "clock", "fill")
_COLUMNS = (
    "device", "device_name", "device_kind", "device_id", "run_id", "utc", "host", "pci_bus", "gpu_uuid",
    "serial", "tags", "source", "measured_in", "operator", "arithmetic", "dtype", "status",
    "median_s", "low_s", "high_s", "flop", "byte",
    "concurrent_gpus", "limit_reasons", *_CASE, *_PROTOCOL, *STATE, *SETTINGS,
)  # fmt: skip


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
    device_name: str = ""
    """The device's name by its driver, which identifies its datasheet."""

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
    """A row for each case of each run that has a time.

    Columns: unit, kind, case (equal on all units that can be compared), name (the case's, for people), class,
    together (whether other GPUs of the node were timed at the same time), run_id, utc, operator, arithmetic,
    dtype, flop, byte, log_s (natural logarithm of the median seconds), half (half of the 95 % interval of
    log_s), limit_reasons, and those of STATE and SETTINGS; null or NaN where nothing is known.
    """
    failed: pd.DataFrame
    """Rows without a time that should have one (status wrong, crashed, ...): unit, kind, case, name, status,
    run_id.
    """
    left_out: Sequence[str]
    """A sentence for each file that could not be read."""
    expected: Mapping[str, int | None]
    """Node that there should be -> how many units it has; None if nobody said."""

    @property
    def kinds(self) -> list[str]:
        """Kinds of devices, the most frequent first."""
        kinds = [unit.kind for unit in self.units.values()]
        return sorted(set(kinds), key=lambda kind: (-kinds.count(kind), kind))

    def of_kind(self, kind: str) -> pd.DataFrame:
        """The times of one kind of device."""
        return self.times[self.times["kind"] == kind]


def read(paths: Sequence[Path], expected: Path | None = None) -> Fleet:
    """The fleet in these result files, or folders of them.

    `expected` names the file with the nodes there should be; None: `expected.txt` in the folders, if there is
    one. Damaged files are left out with a sentence. UserError if no file can be read or the list cannot.
    """
    left_out: list[str] = []
    names = list(_COLUMNS)
    tables = [table.select(names) for _, table in parquet.tables(paths, left_out.append, names)]
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
    timed = (frame["status"] == "ok") & (frame["median_s"] > 0)
    frame = frame.assign(**_case(frame))
    wanted = frame["status"].isin(["unsupported", "skipped"])
    failed = frame.loc[~timed & ~wanted, ["unit", "kind", "case", "name", "status", "run_id"]]
    return Fleet(
        units=_units(frame),
        times=_times(frame[timed]),
        failed=failed.reset_index(drop=True),
        left_out=left_out,
        expected=_expected(paths, expected),
    )


def newest(times: pd.DataFrame) -> pd.DataFrame:
    """The newest time of each case of each unit, alone and together."""
    ordered = times.sort_values("utc", kind="stable")
    return ordered.drop_duplicates(["unit", "case", "together"], keep="last")


def missing(fleet: Fleet) -> list[str]:
    """A sentence for each node that was expected and gave nothing, or fewer units than it has.

    Where nobody said how many units a node has, it is the number that most nodes of its kind have.
    """
    there: dict[str, dict[str, set[str]]] = {}
    for unit in fleet.units.values():
        there.setdefault(unit.node, {}).setdefault(unit.kind, set()).add(unit.slot)
    usual = {
        kind: _usual_slots([kinds[kind] for kinds in there.values() if kind in kinds]) for kind in fleet.kinds
    }
    sentences = []
    for node in sorted(fleet.expected.keys() | there.keys(), key=natural):
        count = fleet.expected.get(node)
        if node not in there:
            sentences.append(f"MISSING {node}" + (f" ({count_text(count, 'unit')})" if count else ""))
            continue
        given = sum(len(slots) for slots in there[node].values())
        total = count or sum(max(usual[kind][0], len(slots)) for kind, slots in there[node].items())
        if given < total:
            lacking = sorted(set().union(*(usual[kind][1] - slots for kind, slots in there[node].items())))
            which = f" ({', '.join(lacking)})" if len(lacking) == total - given else ""
            sentences.append(f"MISSING {node}: {total - given} of {count_text(total, 'unit')}{which}")
    return sentences


def _usual_slots(nodes: Sequence[set[str]]) -> tuple[int, frozenset[str]]:
    """How many units most of these nodes have, the more if in doubt; the slots of most nodes with so many."""
    counts = [len(slots) for slots in nodes]
    usual = max(sorted(set(counts), reverse=True), key=counts.count)
    every = [frozenset(slots) for slots in nodes if len(slots) == usual]
    return usual, max(sorted(set(every), key=sorted), key=every.count)


def natural(name: str) -> list[tuple[int, str]]:
    """A key that puts node9 before node10."""
    return [(int(part) if part.isdigit() else -1, part) for part in re.split(r"(\d+)", name)]


def _expected(paths: Sequence[Path], given: Path | None) -> dict[str, int | None]:
    files = [given] if given else sorted({each for p in paths if p.is_dir() for each in p.rglob(EXPECTED)})
    nodes: dict[str, int | None] = {}
    for file in files:
        try:
            lines = file.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{file}: the list of expected nodes cannot be read: {error}") from error
        for number, line in enumerate(lines, 1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            if len(words) > 2 or (len(words) == 2 and not (words[1].isdecimal() and int(words[1]))):
                give = "give a node's name, or its name and its number of units"
                raise UserError(f"{file}:{number}: {line.strip()!r}: {give}")
            nodes[words[0]] = int(words[1]) if len(words) == 2 else nodes.get(words[0])
    return nodes


@cache
def _tags(text: str) -> dict[str, str]:
    return {str(key): str(value) for key, value in json.loads(text or "{}").items()}


def _case(frame: pd.DataFrame) -> dict[str, pd.Series]:
    """Equal where times can be compared: sweep, implementation, parameters, and how they were measured.

    And the name by which people know the case, which says nothing of how it was measured.
    """
    number = frame.groupby([*_CASE, *_PROTOCOL], observed=True, dropna=False, sort=False).ngroup()
    first = frame[~number.duplicated()].set_index(number[~number.duplicated()])
    keys = [" ".join(filter(None, map(_text, row))) for row in first[[*_CASE, *_PROTOCOL]].to_numpy()]
    threads = first["threads_asked"].astype(object).where(first["threads_asked"].notna(), None)
    names = [row_name(row) for row in first.assign(threads_asked=threads).itertuples()]
    return {name: number.map(pd.Series(of, first.index)) for name, of in (("case", keys), ("name", names))}


def _times(frame: pd.DataFrame) -> pd.DataFrame:
    median_s = frame["median_s"]
    kept = [
        "unit", "kind", "case", "name", "run_id", "utc", "operator", "arithmetic", "dtype", "flop", "byte",
        "limit_reasons", *STATE, *SETTINGS,
    ]  # fmt: skip
    times = frame[kept].assign(
        **{
            "class": class_of(frame),
            "together": frame["concurrent_gpus"].fillna(1) > 1,
            "log_s": np.log(median_s),
            "half": np.log(frame["high_s"] / frame["low_s"].where(frame["low_s"] > 0)) / 2,
        }
    )
    return times.reset_index(drop=True)


def class_of(rows: pd.DataFrame) -> pd.Series:
    """The class of each row, by its columns operator, cache, arithmetic, flop and byte."""
    intense = (rows["arithmetic"] != "vector") & (rows["flop"] >= COMPUTE_FLOP_PER_BYTE * rows["byte"])
    classes = np.select(
        [rows["operator"] == "launch", rows["operator"] == "transfer", rows["cache"] == "warm", intense],
        ["launch", "transfer", "cache", "compute"],
        "memory",
    )
    return pd.Series(pd.Categorical(classes, categories=CLASSES), index=rows.index)


def _units(frame: pd.DataFrame) -> dict[str, Unit]:
    """The units, each as its newest run describes it."""
    facts = ["unit", "kind", "node", "pci_bus", "gpu_uuid", "serial", "tags", "utc", "device_name"]
    last = frame[facts].sort_values("utc", kind="stable").drop_duplicates("unit", keep="last")
    records: list[dict[str, Any]] = last.to_dict("records")  # type: ignore[assignment]
    return {
        row["unit"]: Unit(
            id=row["unit"],
            kind=row["kind"],
            node=row["node"],
            slot=_text(row["pci_bus"]),
            uuid=_text(row["gpu_uuid"]),
            serial=_text(row["serial"]),
            tags={key: value for key, value in _tags(_text(row["tags"])).items() if key != "node"},
            device_name=row["device_name"],
        )
        for row in records
    }


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def tags_of_all(units: Iterable[Unit]) -> list[str]:
    """`simulated yes` for each tag that all units have in common."""
    every = [set(unit.tags.items()) for unit in units]
    return [f"{key} {value}" for key, value in sorted(set.intersection(*every))] if every else []


def nodes_of(units: Iterable[Unit]) -> dict[str, list[Unit]]:
    """Node -> its units."""
    nodes: dict[str, list[Unit]] = {}
    for unit in units:
        nodes.setdefault(unit.node, []).append(unit)
    return nodes
