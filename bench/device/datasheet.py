"""Datasheets: the peaks of devices, one file for each in bench/device/datasheets, each number with a source.

Names match as a whole, so that no card is given another card's peaks. A card without a file gets a
datasheet derived from what its driver reports, which is marked as derived; its rates are those that its
compute capability and name imply.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bench.errors import UserError, closest, quoted, suggestion
from bench.spec import Dtype

Unit = Literal["matrix", "vector"]
MemoryType = Literal["HBM", "GDDR", "GDDR with ECC"]

FILES = Path(__file__).with_name("datasheets")
BY_CAPABILITY = "by_capability.yaml"
HBM_BUS_BIT = 1024
"""Width of one stack of HBM; buses of GDDR have 512 bits at most."""


# ---- the files of bench/device/datasheets


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Figure(_Entry):
    """One published number, in the unit that its key ends with, and the key of its source."""

    value: int | float | None = Field(gt=0)
    source: str
    note: str = ""


class Count(Figure):
    """A figure that is a whole number and known."""

    value: int = Field(gt=0)


_AS_FAST_AS: Mapping[str, str] = {"float8_e5m2": "float8_e4m3", "mxfp8": "float8_e4m3"}
"""Types that the same instructions multiply: PTX's wgmma and tcgen05.mma take both formats of 8 bits."""


class Rate(_Entry):
    """The rate of one kind of unit for one data type; dense, accumulating in float32 (int32 for int8).

    `fma_per_clock_per_sm` counts fused multiply-adds; `flop_per_s` is the whole device's peak as published
    (two per FMA; integer operations for int8), null where only the rate is known. `runs_on: vector`:
    a matrix product of this type runs on the FMA units, so their peak is its peak.
    """

    fma_per_clock_per_sm: int | None = Field(default=None, gt=0)
    flop_per_s: float | None = Field(default=None, gt=0)
    runs_on: Literal["vector"] | None = None
    source: str
    note: str = ""


class _Rates(_Entry):
    match: list[str] = Field(min_length=1)
    compute_capability: str | None = Field(pattern=r"^\d+\.\d$")
    matrix: dict[Dtype, Rate]
    vector: dict[Dtype, Rate]

    @property
    def capability(self) -> tuple[int, int] | None:
        if self.compute_capability is None:
            return None
        major, minor = self.compute_capability.split(".")
        return int(major), int(minor)

    @property
    def rates(self) -> dict[tuple[Unit, Dtype], Rate]:
        return {("matrix", k): v for k, v in self.matrix.items()} | {
            ("vector", k): v for k, v in self.vector.items()
        }


class _Sheet(_Rates):
    """A device file: h100_sxm5.yaml is a good one to begin a new card from.

    `match` lists whole names as the driver gives them. `memory_byte` takes the advertised GB as GiB; the
    driver reports a little less. Without `tensor_clock_hz` matrix units run at the boost clock. A data type
    without an entry has no such units. Floats are written 9.894e+14: YAML reads 9.894e14 as text.
    `reached_flop_per_s`: the highest rate of a matrix product that somebody has published for this card.
    `memory_type`: `GDDR with ECC` has ECC on as shipped, whose check bits take memory and bandwidth.
    """

    name: str
    sources: dict[str, str]
    sm_count: Count
    boost_clock_hz: Figure
    tensor_clock_hz: Figure | None = None
    bandwidth_byte_per_s: Figure
    l2_byte: Count
    memory_byte: Count
    memory_type: MemoryType | None = None
    power_w: Figure
    reached_flop_per_s: dict[Dtype, Figure] = Field(default_factory=dict)


class _ByCapability(_Entry):
    sources: dict[str, str]
    entries: list[_Rates]


_Model = TypeVar("_Model", bound=BaseModel)


def read_model(path: Path, model: type[_Model], **more: Any) -> _Model:
    """A YAML file, and `more`, as this model; UserError names the file, the place and what is wrong there."""
    where = "/".join(path.parts[-4:])
    try:
        # The C loader reads all files in 20 ms, the Python one in 200.
        entry = yaml.load(path.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return model.model_validate(more | entry)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UserError(f"{where}:{line}: not YAML: {error.problem}") from error
    except ValidationError as error:
        first = error.errors()[0]
        loc = first["loc"]
        place = ".".join(str(part) for part in loc)
        reason = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden" and issubclass(model, _Entry):
            owner = model if len(loc) == 1 else Rate if {"matrix", "vector"} & set(loc) else Figure
            reason = f"unknown key; there is {', '.join(owner.model_fields)}"
        raise UserError(f"{where}: {place + ': ' if place else ''}{reason}") from error


# ---- datasheets


@dataclass(frozen=True)
class Datasheet:
    """The peaks of a device, as its maker states them or (`derived`) as its driver's clocks imply.

    Peaks are dense; None: unknown. Its file names the source of each number.
    """

    name: str
    match: tuple[str, ...]
    capability: tuple[int, int] | None
    sm_count: int
    boost_clock_hz: float | None
    tensor_clock_hz: float | None
    bandwidth_byte_per_s: float | None
    l2_byte: int
    memory_byte: int
    rates: Mapping[tuple[Unit, Dtype], Rate]
    derived: bool = False
    slug: str = ""
    """Name of its file in bench/device/datasheets, without the ending; empty if it has none."""
    reached_flop_per_s: Mapping[str, float] = field(default_factory=dict)
    """Data type -> the highest rate of a matrix product that somebody has published."""
    memory_type: MemoryType | None = None
    power_w: float | None = None
    """Its power limit as shipped."""

    def peak_flop_per_s(self, arithmetic: str, dtype: str) -> float | None:
        """Dense peak of these units: the published one, else SMs x FMA x 2 x clock; None if unknown."""
        unit, rate = self._rate(arithmetic, dtype)
        if rate is None or rate.flop_per_s is not None:
            return rate.flop_per_s if rate else None
        return self.computed_flop_per_s(unit, dtype)

    def computed_flop_per_s(self, arithmetic: str, dtype: str) -> float | None:
        """SMs x FMA x 2 x clock, whatever was published; None if a factor is unknown."""
        unit, _ = self._rate(arithmetic, dtype)
        # NVIDIA's tensor clock is that of the types below float32; float64 runs at the boost clock.
        slow = unit == "matrix" and dtype not in ("float32", "float64")
        clock_hz = self.tensor_clock_hz if slow else self.boost_clock_hz
        per_clock = self.flop_per_clock_per_sm(arithmetic, dtype)
        return self.sm_count * per_clock * clock_hz if per_clock and clock_hz else None

    def flop_per_clock_per_sm(self, arithmetic: str, dtype: str) -> int | None:
        """FMA x 2 of one SM in one clock; None if unknown."""
        rate = self._rate(arithmetic, dtype)[1]
        return 2 * rate.fma_per_clock_per_sm if rate and rate.fma_per_clock_per_sm else None

    def _rate(self, arithmetic: str, dtype: str) -> tuple[str, Rate | None]:
        rates: Mapping[Any, Rate] = self.rates
        rate = rates.get((arithmetic, _AS_FAST_AS.get(dtype, dtype)))
        if rate is not None and rate.runs_on:
            return rate.runs_on, rates.get((rate.runs_on, dtype))
        return arithmetic, rate


def slug_of(name: str) -> str:
    """A device's name in lower case, fit for a folder."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def datasheets(folder: Path = FILES) -> list[Datasheet]:
    """Every device file, by name; UserError names the first one with a mistake."""
    return [
        _datasheet(read_model(p, _Sheet), p.stem)
        for p in sorted(folder.glob("*.yaml"))
        if p.name != BY_CAPABILITY
    ]


@cache
def _ours() -> tuple[Datasheet, ...]:
    return tuple(datasheets())


@cache
def find_datasheet(driver_name: str, memory_byte: int | None = None) -> Datasheet | None:
    """The datasheet of exactly this name, and of about this memory if given; None if there is none.

    A card of the same name with other memory is another card (an RTX 4090 rebuilt with 48 GB).
    """
    for sheet in _ours():
        if driver_name in sheet.match and (memory_byte is None or _fits(memory_byte, sheet.memory_byte)):
            return sheet
    return None


def gpu_named(text: str) -> Datasheet | None:
    """The datasheet of a GPU by any name a user may give; None if there is none.

    Its file's, its own or its driver's, with or without the maker, in capitals or as a folder has it.
    """
    plain = _plain(text)
    named = (sheet for sheet in _ours() if plain in map(_plain, (sheet.slug, sheet.name, *sheet.match)))
    return next(named, None)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]|^(nvidia|amd)", "", name.lower())


def near_gpus(text: str) -> list[str]:
    """Files of GPUs whose names are similar to this one, SXM before its siblings, or of a similar model."""
    slugs = sorted((sheet.slug for sheet in _ours()), key=lambda slug: ("sxm" not in slug, slug))
    models: dict[str, list[str]] = {}
    for slug in slugs:
        models.setdefault(slug.partition("_")[0], []).append(slug)
    text = "_".join(re.sub(r"^((nvidia|amd|tesla|geforce)\b *)+", "", text.lower()).split())
    return closest(text, slugs) or [slug for model in closest(text, models) for slug in models[model]][:3]


def cuda_gpu_named(text: str, where: str) -> Datasheet:
    """As `gpu_named`, for CUDA; UserError, which begins with `where`, names those there are."""
    if (sheet := gpu_named(text)) is not None and sheet.capability is not None:
        return sheet
    slugs = ", ".join(sheet.slug for sheet in _ours() if sheet.capability is not None)
    raise UserError(
        f"{where}: bench/device/datasheets has no CUDA GPU {quoted(text)}{suggestion(near_gpus(text))}; "
        f"it has {slugs}"
    )


def _fits(driver_byte: int, sheet_byte: int) -> bool:
    # GDDR6 cards give 1/16 of their memory to ECC and the driver keeps some: a T4 shows 14.6 of 16 GiB.
    return 0.85 * sheet_byte < driver_byte < 1.05 * sheet_byte


def _datasheet(file: _Sheet, slug: str) -> Datasheet:
    figures: dict[str, Any] = {name: each.value for name, each in file if isinstance(each, Figure)}
    return Datasheet(
        **{"tensor_clock_hz": file.boost_clock_hz.value} | figures,
        name=file.name,
        match=tuple(file.match),
        capability=file.capability,
        rates=file.rates,
        slug=slug,
        memory_type=file.memory_type,
        reached_flop_per_s={t: f.value for t, f in file.reached_flop_per_s.items() if f.value is not None},
    )


def usual_rates(name: str, capability: tuple[int, int]) -> Mapping[tuple[Unit, Dtype], Rate]:
    """Rates of a GPU without a file: none unless cards of its name and capability are known to have them."""
    for entry in read_model(FILES / BY_CAPABILITY, _ByCapability).entries:
        if entry.capability == capability and any(fnmatchcase(name, pattern) for pattern in entry.match):
            return entry.rates
    return {}
