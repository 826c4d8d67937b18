"""Import of public timings of matrix products from the PyPI package aiconfigurator-core (Apache-2.0, NVIDIA).

What is imported are times of vLLM's bfloat16 linear layers on each GPU: torch.nn.functional.linear, x[m, k]
times w[n, k] transposed. In the terms of kernels/gemm that is layout TN, with m and n exchanged. Its
collector (collector/vllm/collect_gemm.py in the repository ai-dynamo/aiconfigurator) captures six layers,
each with weights of its own, into a CUDA graph, replays it three times to warm up and six times between two
events, and publishes the mean. So data is warm as far as the cache holds all six weights. x is normal, but
the weights are left uninitialised: they draw less power than random ones, which raises the highest rates.

Other kinds of table are read only to try the model (bench/validation/prediction.py). Those of SGLang and
TensorRT-LLM are bfloat16 too. Those of float8 and nvfp4 are no products alone: x is bfloat16 and is quantised
in each launch, by scales that the launch finds, before the product is computed (QuantizedLinear in
bench/interop/imported_problems.py; bench/interop/import_engine_tables.py imports vLLM's for good).

Only the package's data files are read: it is found, never imported.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.parquet as pq

from bench.device.datasheet import find_datasheet, slug_of
from bench.errors import UserError
from bench.interop.imported_problems import QuantizedLinear
from bench.interop.imported_rows import FOLDER, Imported, declared, device_columns, foreign_row, source_text
from bench.spec import ITEM_BYTE, PACKED, Problem, parameters_text
from bench.store.schema import Measurement
from bench.sweep import load as sweep
from bench.sweep.load import Find

MODULE, DISTRIBUTION = "aiconfigurator_core", "aiconfigurator-core"
TABLES = "systems/data/*/gemm/{engine}/*/gemm_perf.parquet"
"""Pattern below the package: one table for each GPU and version of the engine."""
COLUMNS = ("framework", "version", "device", "op_name", "kernel_source", "gemm_dtype", *"mnk", "latency")
"""Columns of a table that are read."""


class Kind(NamedTuple):
    """Rows of one engine and data type."""

    engine: str
    """Their folder."""
    name: str
    theirs: str
    """The data type as the tables call it."""
    dtype: str
    sources: tuple[str, ...]
    """What runs, as the tables call it; `vllm_default` and such is what older ones call all they hold."""
    scaling: str = ""
    """Of a QuantizedLinear; empty: a matrix product."""

    @property
    def sizes(self) -> dict[str, str]:
        """The problem's name of a size -> theirs. Outputs (their n) are BLAS's m, the batch its n."""
        if self.scaling:
            return {"outputs": "n", "batch": "m", "inputs": "k"}
        return {"m": "n", "n": "m", "k": "k"}

    @property
    def parameters(self) -> dict[str, Any]:
        """What all its problems have in common."""
        more = {"scaling": self.scaling} if self.scaling else {"layout": "TN"}
        return {"dtype": self.dtype} | more

    def problem(self, find: Find) -> type[Problem]:
        """The class of its problems."""
        return QuantizedLinear if self.scaling else find(OPERATOR)

    def weights(self, weight_byte: npt.NDArray[Any], cache_byte: int) -> npt.NDArray[Any]:
        """Layers that take turns, each with weights of its own.

        Six; TensorRT-LLM's collector has as many as fill the cache, five at most.
        """
        if self.engine != "trtllm":
            return np.full(weight_byte.shape, float(WEIGHTS))
        return np.clip(np.ceil(cache_byte / weight_byte), 1, 5)


NVFP4 = ("FlashInferCuteDslNvFp4LinearKernel", "FlashInferCutlassNvFp4LinearKernel")
KINDS = (
    Kind("vllm", "vLLM", "bfloat16", "bfloat16", ("torch.nn.functional.linear", "vllm_default")),
    Kind("sglang", "SGLang", "bfloat16", "bfloat16", ("sglang_torch_linear", "sglang")),
    Kind("trtllm", "TensorRT-LLM", "bfloat16", "bfloat16", ("torch_flow",)),
    Kind("vllm", "vLLM", "fp8", "float8_e4m3", ("CutlassFP8ScaledMMLinearKernel",), "row"),
    Kind("sglang", "SGLang", "fp8", "float8_e4m3", ("sglang_sgl_kernel_fp8_scaled_mm",), "row"),
    Kind("trtllm", "TensorRT-LLM", "fp8", "float8_e4m3", ("torch_flow",), "tensor"),
    Kind("vllm", "vLLM", "nvfp4", "nvfp4", NVFP4, "group"),
    Kind("trtllm", "TensorRT-LLM", "nvfp4", "nvfp4", ("torch_flow",), "group"),
)
"""The first is what is imported."""
GPUS = ("NVIDIA ", "Tesla ")
"""Beginnings of the names of NVIDIA's GPUs."""
OPERATOR, IMPLEMENTATION = "gemm", "cublas"
WEIGHTS = 6
"""Number of layers that take turns, each with weights of its own."""
CALIBRATION = "ceilings/gemm_shapes"
"""The sweep whose shapes calibrate the model: rows of these shapes are its rows."""
MORE_CALIBRATION = "ceilings/on_request/gemm_shapes_448"
"""The sweep of the shapes that calibrate it besides, but for a sample's."""
OTHERS = "imported/aiconfigurator"
"""The sweep of all other rows. It has no file."""
SAMPLE = 300
"""Rows of a sample beside the calibration shapes."""
SEED = 6

Say = Callable[[str], object]


@dataclass(frozen=True)
class Package:
    """The installed package: its folder and metadata."""

    folder: Path
    version: str
    licence: str

    @classmethod
    def installed(cls) -> Package:
        """Find it without importing it. UserError, with the command to install it, if it is not here."""
        spec = importlib.util.find_spec(MODULE)
        try:
            about = importlib.metadata.metadata(DISTRIBUTION)
        except importlib.metadata.PackageNotFoundError:
            spec = None
        if spec is None or not spec.submodule_search_locations:
            raise UserError(
                f"the package {DISTRIBUTION}, which holds these timings, is not installed: "
                f"pip install -c constraints.txt {DISTRIBUTION}"
            )
        licence = about["License-Expression"] or about["License"] or "licence unknown"
        return cls(Path(spec.submodule_search_locations[0]), about["Version"], licence)

    def tables(self, kind: Kind) -> list[Path]:
        """Every table with such matrix products, by name."""
        return sorted(self.folder.glob(TABLES.format(engine=kind.engine)))


def calibration_shapes(find: Find, more: bool = False) -> dict[str, str]:
    """The shapes that calibrate the model, as `parameters` texts -> their sweep; with `more` all 512.

    UserError if a sweep is unreadable.
    """
    names = (CALIBRATION, MORE_CALIBRATION) if more else (CALIBRATION,)
    loaded = (entry for name in names for entry in sweep.load_all(sweep.select(name), find, sm_count=1))
    return {
        parameters_text(case.problem.parameters()): entry.name for entry in loaded for case in entry.cases
    }


@dataclass(frozen=True)
class Import:
    """One import of a package into a folder of results."""

    package: Package
    find: Find
    """Gives the problem class of an operator."""
    calibration: Mapping[str, str]
    """The `calibration_shapes`."""
    results: Path
    """The folder of results, or of samples."""
    sample: bool = False
    """Keep only the calibration shapes and SAMPLE others of each table."""
    kind: Kind = KINDS[0]

    def devices(self, say: Say) -> Iterator[Imported]:
        """Each GPU's rows, table by table. `say` gets a sentence for whatever is left out.

        UserError if nothing at all could be read.
        """
        none = True
        for path in self.package.tables(self.kind):
            try:
                for timed in timings(path, self.kind, say):
                    none = False
                    yield self._imported(timed, str(path.relative_to(self.package.folder)))
            except UserError as refusal:
                say(str(refusal))
        if none:
            tables = TABLES.format(engine=self.kind.engine)
            raise UserError(f"{self.package.folder}: holds no {tables} that could be imported")

    def _imported(self, timed: Timings, where: str) -> Imported:
        engine = f"{self.kind.engine}-{timed.version}"
        run_id = f"{DISTRIBUTION}-{self.package.version}-{engine}-{slug_of(timed.device)}"
        folder = self.results / FOLDER / slug_of(timed.device)
        shapes, texts, drawn = timed.shapes, self._texts(timed.shapes), ""
        if self.sample:
            calibrating = np.array([text in self.calibration for text in texts])
            kept = sampled(shapes, calibrating)
            folder, run_id = self.results / slug_of(timed.device), f"{run_id}-sample"
            drawn = f"a sample: {kept.sum()} of {len(shapes)} rows, all that calibrate and {SAMPLE} drawn"
            shapes, texts = shapes[kept], [text for text, keep in zip(texts, kept, strict=True) if keep]
        who = f"{DISTRIBUTION} {self.package.version}, {self.kind.name} {timed.version}"
        columns = {
            "run_id": run_id,
            "source": source_text(who, where, f"{self.package.licence}, NVIDIA", drawn),
            "libraries": f"{self.kind.name} {timed.version} and its cuBLAS",
            **{"protocol": who, "clock": "graph", "cache": "warm", "ring_slots": WEIGHTS},
            "fill": "x normal, weights uninitialised",
            **device_columns(timed.device, "cuda", find_datasheet(timed.device)),
        }
        rows = self._rows(shapes, texts, columns)
        return Imported(folder / f"{run_id}.parquet", rows, declared(rows, self.find))

    def _texts(self, shapes: pd.DataFrame) -> list[str]:
        """The canonical text of each row's parameters."""
        names = self.kind.sizes
        least = self.kind.parameters | dict.fromkeys(names, 1)
        same = self.kind.problem(self.find)(**least).parameters()
        rows = zip(*(shapes[theirs].tolist() for theirs in names.values()), strict=True)
        return [parameters_text(same | dict(zip(names, sizes, strict=True))) for sizes in rows]

    def _rows(self, shapes: pd.DataFrame, texts: Collection[str], same: dict[str, Any]) -> list[Measurement]:
        # One problem with arrays as sizes counts all 35,000 rows by the formulas for one. It is made without
        # the checks of a single problem: reading the table checked that sizes are whole and above zero.
        sizes = {ours: shapes[name].to_numpy(dtype=np.int64) for ours, name in self.kind.sizes.items()}
        every: dict[str, Any] = self.kind.parameters | sizes
        problem = self.kind.problem(self.find).model_construct(**every)
        facts = problem.facts(self.kind.sources[0] if self.kind.scaling else IMPLEMENTATION)
        sized = ("flop", "byte", "moved", "product")
        counted = {name: count for name, count in facts.items() if name.startswith(sized)}
        outputs, _, inputs = sizes.values()
        weight_byte = outputs * inputs * ITEM_BYTE[problem.dtype] / PACKED.get(problem.dtype, 1)
        weights = self.kind.weights(weight_byte, same["cache_byte"])
        counted["ring_byte"] = (counted["byte"] + (weights - 1) * weight_byte).astype(np.int64)
        columns = {name: np.broadcast_to(count, len(shapes)).tolist() for name, count in counted.items()}
        columns["median_s"] = shapes["seconds"].tolist()
        columns["parameters"] = list(texts)
        columns["sweep"] = [self.calibration.get(text, OTHERS) for text in texts]
        columns["role"] = ["calibration" if text in self.calibration else "measurement" for text in texts]
        rows = zip(*columns.values(), strict=True)
        return [foreign_row({**facts, **same, **dict(zip(columns, values, strict=True))}) for values in rows]


def sampled(shapes: pd.DataFrame, calibrating: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which rows a sample keeps: those that calibrate, and SAMPLE others evenly over the octaves of FLOP.

    The octaves take turns, each giving its next shape in the order of a hash of SEED and the shape. So the
    choice is the same every time, and the same in two tables that hold the same shapes.
    """
    sizes = list(zip(*(shapes[name] for name in KINDS[0].sizes.values()), strict=True))
    others = [size for size, calibrates in zip(sizes, calibrating, strict=True) if not calibrates]
    drawn = evenly({f"{m} {n} {k}": float(m) * n * k for m, n, k in others})
    return np.logical_or(calibrating, [f"{m} {n} {k}" in drawn for m, n, k in sizes])


def evenly(work: Mapping[str, float]) -> set[str]:
    """SAMPLE of these names, each with its work, evenly over the octaves of work."""
    octaves: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for name, amount in work.items():
        octaves[int(math.log2(amount))].append((hashlib.sha256(f"{SEED} {name}".encode()).hexdigest(), name))
    turns = sorted(
        (turn, octave, name)
        for octave, ranked in octaves.items()
        for turn, (_, name) in enumerate(sorted(ranked))
    )
    return {name for _, _, name in turns[:SAMPLE]}


# ---- one table: its sound times of bfloat16 linear layers


@dataclass(frozen=True)
class Timings:
    """The times of one GPU under one version of vLLM."""

    device: str
    """Name of the GPU as its driver gives it."""
    version: str
    shapes: pd.DataFrame
    """Columns `m`, `n`, `k` as the table has them, and `seconds`: one row for each shape, by size."""


def timings(path: Path, kind: Kind, say: Say) -> Iterator[Timings]:
    """Every GPU's times in one table. `say` gets a sentence for whatever is left out.

    UserError if the table cannot be read, or has nothing that could be imported.
    """
    linear = _linear(read_table(path, COLUMNS), kind, path, say)
    for (device, version), group in linear.groupby(["device", "version"], sort=True):
        if not str(device).startswith(GPUS):
            say(f"left out {path}: {device} is no NVIDIA GPU")
            continue
        sound = _sound(group, path, say)
        if not sound.empty:
            yield Timings(str(device), str(version), sound)


def read_table(path: Path, columns: Iterable[str]) -> pd.DataFrame:
    """A table that has these columns, and perhaps others. UserError if it cannot be read or lacks one."""
    try:
        frame: pd.DataFrame = pq.read_table(path, use_threads=False).to_pandas(use_threads=False)
    except Exception as error:  # pyarrow may raise anything on damaged bytes
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"left out {path}: not a whole parquet file ({reason})") from error
    if lacking := [name for name in columns if name not in frame.columns]:
        there = ", ".join(map(str, frame.columns))
        raise UserError(f"left out {path}: lacks the column {lacking[0]}; it has {there}")
    return frame


def _linear(frame: pd.DataFrame, kind: Kind, path: Path, say: Say) -> pd.DataFrame:
    """The rows of this kind; other data types have kernels of the engine's own."""
    frame = frame[(frame["gemm_dtype"] == kind.theirs) & (frame["op_name"] == "gemm")]
    ours = frame["kernel_source"].isin(kind.sources)
    if not ours.all():
        others = ", ".join(sorted(frame["kernel_source"][~ours].astype(str).unique()))
        say(f"left out {int((~ours).sum())} rows of {path}: run by {others}, not by {kind.sources[0]}")
    if not ours.any():
        raise UserError(f"left out {path}: holds no {kind.theirs} row of {kind.sources[0]}")
    return frame[ours]


def _sound(table: pd.DataFrame, path: Path, say: Say) -> pd.DataFrame:
    """The rows that have a size and a time.

    The median counts if a shape has several times: nothing says which of them is better.
    """
    numbers = table[["m", "n", "k", "latency"]].apply(pd.to_numeric, errors="coerce").astype(np.float64)
    sizes, latency_ms = numbers[["m", "n", "k"]], numbers["latency"]
    whole = ((sizes >= 1) & (sizes % 1 == 0)).all(axis=1)
    sound = numbers[whole & np.isfinite(latency_ms) & (latency_ms > 0)]
    if len(sound) < len(table):
        say(f"left out {len(table) - len(sound)} rows of {path}: without whole sizes or a time above zero")
    once = sound.groupby(["m", "n", "k"], sort=True)["latency"].median().reset_index()
    if len(once) < len(sound):
        say(f"{path}: {len(sound) - len(once)} rows repeat a shape; the median of its times counts")
    sized = once.astype({"m": np.int64, "n": np.int64, "k": np.int64})
    return pd.DataFrame({**{name: sized[name] for name in "mnk"}, "seconds": once["latency"] / 1e3})
