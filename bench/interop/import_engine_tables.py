"""Import of more tables of the package aiconfigurator-core: what parts of an inference engine take.

Quantised linear layers and attention of vLLM, and what GPUs do together (NCCL, vLLM's all-reduce). Of the
tables of one GPU the newest counts. How they were measured was read in the collectors of the repository
ai-dynamo/aiconfigurator, of which those of vLLM declare themselves for its version 0.24.0:

*   collector/vllm/collect_gemm.py: a whole layer, bfloat16 in and out, so that each time holds quantising its
    input. bfloat16, fp8: six layers take turns in a CUDA graph. nvfp4: one. fp8_block: one, without a graph.
*   collector/vllm/collect_attn.py: new k and v are written to a paged cache, from which attention reads, in a
    CUDA graph. Whether q is fp8 where the cache is, no column says: these rows are left out, and those with a
    window. collect_attn_encoder.py: attention of all positions to all, without a cache.
*   collector/network/collect_nccl.py: nccl-tests, one process. collect_all_reduce.py: five of vLLM's
    all-reduces in a CUDA graph; without one each copies its input first, and these rows are left out.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pandas as pd

from bench.device.datasheet import find_datasheet, slug_of
from bench.errors import UserError
from bench.interop.import_aiconfigurator import DISTRIBUTION, GPUS, SAMPLE, Package, Say, evenly, read_table
from bench.interop.imported_problems import Collective, QuantizedLinear
from bench.interop.imported_rows import FOLDER, Imported, device_columns, foreign_row, source_text
from bench.spec import Problem, parameters_text
from bench.store.schema import Measurement
from bench.sweep.load import Find

ENGINES = {"vllm": "vLLM", "nccl": "NCCL"}
"""Folder of a table -> what it is of."""
ATTENTION = (
    *("vllm_flash_attn", "vllm_flashinfer_trtllmprefill", "vllm_flashinfer_trtllmdecode"),
    *(f"vllm_{model}flash_attn_fa{version}" for model in ("", "vit_") for version in (2, 3, 4)),
)
"""What runs attention, as the tables call it: FlashAttention 2 to 4, and TensorRT-LLM's kernels. `vit` is
that of an image's encoder, the first that of older tables."""


class Case(NamedTuple):
    """What a row of a table times, and how that was done."""

    problem: Problem
    implementation: str
    clock: str
    ring_slots: int
    fill: str
    copied_byte: int = 0
    """Keys and values that are copied to a cache first, which the problem does not count."""

    @property
    def facts(self) -> dict[str, Any]:
        """The columns that depend on the problem, with the copies: once read, once written, read again."""
        facts = self.problem.facts(self.implementation)
        copies = {"byte_moved": 2, "byte_again": 1, "moved_written": 1}
        return facts | {name: facts[name] + times * self.copied_byte for name, times in copies.items()}


def _linear(row: Any, find: Find) -> Case:
    dtype, scaling, weights, slots = {
        "bfloat16": ("bfloat16", "none", "uninitialised", 6),
        "fp8": ("float8_e4m3", "row", "all 0.01", 6),
        "fp8_block": ("float8_e4m3", "block", "normal", 1),
        "nvfp4": ("nvfp4", "group", "normal", 1),
    }[row.gemm_dtype]
    problem = QuantizedLinear(
        **{"dtype": dtype, "scaling": scaling, "batch": row.m, "outputs": row.n, "inputs": row.k}
    )
    problem.implementation(row.kernel_source)
    clock = "stream" if scaling == "block" else "graph"
    return Case(problem, row.kernel_source, clock, slots, f"x normal, weights {weights}")


def _attention(row: Any, find: Find) -> Case:
    if row.kernel_source not in ATTENTION:
        raise LookupError(f"run by {row.kernel_source}, whose work is not known")
    encoder, decoding = row.op_name == "encoder_attention", row.op_name == "generation_attention"
    if not encoder and (row.kv_cache_dtype != row.attn_dtype or row.beam_width != 1):
        raise LookupError(f"a cache in {row.kv_cache_dtype}, where the type of the products is not known")
    if decoding and not hasattr(row, "window_size"):
        raise LookupError("an older table, which counts the new token differently")
    if getattr(row, "window_size", 0):
        raise LookupError("a position sees a window of the positions before it")
    kv_heads = getattr(row, "num_key_value_heads", row.num_heads)
    problem = find("attention")(
        **{"direction": "forward", "dtype": row.attn_dtype, "batch": row.batch_size, "heads": row.num_heads},
        **{"kv_heads": kv_heads, "head_width": row.head_dim, "causal": not (encoder or decoding)},
        **{"q_length": row.isl, "kv_length": row.isl + getattr(row, "step", 0)},
    )
    copied = 2 * row.batch_size * kv_heads * row.isl * row.head_dim * problem.item_byte
    return Case(problem, row.kernel_source, "graph", 1, "normal", 0 if encoder else copied)


def _collective(row: Any, find: Find) -> Case:
    nccl = row.kernel_source == "NCCL"
    given = row.nccl_dtype if nccl else row.allreduce_dtype
    problem = Collective(
        dtype={"half": "float16"}.get(given, given),
        **{"operation": row.op_name, "gpus": row.num_gpus, "elements": row.message_size},
    )
    problem.implementation(row.kernel_source)
    how = ("host", 1, "nccl-tests' own") if nccl else ("graph", 5, "ones")
    return Case(problem, row.kernel_source, *how)


class Table(NamedTuple):
    """A kind of table."""

    files: tuple[str, ...]
    """Patterns below the folder of a system: each is a file in a folder of its version."""
    columns: tuple[str, ...]
    """Columns that are read beside those of every table."""
    case: Callable[[Any, Find], Case]
    sampled_by: tuple[str, ...]
    """Parameters by which a sample is drawn: rows that agree in them are kept together. None: all are."""


TABLES: Mapping[str, Table] = {
    "quantized_linear": Table(
        ("gemm/vllm/*/gemm_perf.parquet",), ("gemm_dtype", *"mnk"), _linear, ("outputs", "batch", "inputs")
    ),
    "attention": Table(
        tuple(
            f"{folder}attention/vllm/*/{phase}_attention_perf.parquet"
            for folder, phase in (("", "context"), ("", "generation"), ("encoder_", "encoder"))
        ),
        ("batch_size", "isl", "num_heads", "head_dim", "attn_dtype"),
        _attention,
        ("batch", "heads", "kv_heads", "q_length", "kv_length", "head_width", "causal"),
    ),
    "collective": Table(
        ("comm/nccl/*/nccl_perf.parquet", "comm/vllm/*/custom_allreduce_perf.parquet"),
        ("num_gpus", "message_size"),
        _collective,
        (),
    ),
}  # fmt: skip
"""Operator of the rows -> its tables."""
COLUMNS = ("version", "device", "op_name", "kernel_source", "latency")
"""Columns of every table that are read."""


Source = tuple[str, str, str]
"""The GPU as its driver names it, the engine, and its version."""


@dataclass
class Timed:
    """What the tables of one source have."""

    folders: dict[str, None] = field(default_factory=dict)
    """Where they lie below the package."""
    times: dict[Case, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Seconds: all that they have of a case, of which the median counts."""


@dataclass(frozen=True)
class EngineImport:
    """One import of one kind of table into a folder of results."""

    package: Package
    operator: str
    """Of `TABLES`."""
    find: Find
    """Gives the problem class of an operator."""
    results: Path
    """The folder of results, or of samples."""
    sample: bool = False

    def devices(self, say: Say) -> Iterator[Imported]:
        """The rows of each GPU and engine. `say` gets a sentence for whatever is left out.

        UserError if nothing at all could be read.
        """
        none = True
        for system in sorted((self.package.folder / "systems/data").glob("*")):
            sources: dict[Source, Timed] = defaultdict(Timed)
            for path in self._newest(system):
                try:
                    self._read(path, sources, say)
                except UserError as refusal:
                    say(str(refusal))
            for source, timed in sources.items():
                none = False
                rows = self._rows(source, timed)
                folder = self.results if self.sample else self.results / FOLDER
                yield Imported(folder / rows[0].device / f"{rows[0].run_id}.parquet", rows, {})
        if none:
            files = " or ".join(TABLES[self.operator].files)
            raise UserError(f"{self.package.folder}: holds no {files} that could be imported")

    def _newest(self, system: Path) -> Iterator[Path]:
        """The table of the highest version, of each pattern that the system has one of."""
        for pattern in TABLES[self.operator].files:
            there = sorted(system.glob(pattern), key=lambda path: _numbers(path.parent.name))
            yield from there[-1:]

    def _read(self, path: Path, sources: dict[Source, Timed], say: Say) -> None:
        """Add the times of a table to those of its sources. UserError if it cannot be read."""
        left: Counter[str] = Counter()
        frame = read_table(path, (*COLUMNS, *TABLES[self.operator].columns))
        frame["latency"] = pd.to_numeric(frame["latency"], errors="coerce")
        where = str(path.parent.relative_to(self.package.folder))
        for row in frame.itertuples(index=False):
            try:
                case = self._case(row)
            except LookupError as refusal:
                left[str(refusal.args[0])] += 1
                continue
            timed = sources[str(row.device), ENGINES[path.parts[-3]], str(row.version)]
            timed.folders[where] = None
            timed.times[case].append(float(str(row.latency)) / 1e3)
        for reason, count in left.items():
            say(f"left out {count} rows of {path}: {reason}")

    def _rows(self, source: Source, timed: Timed) -> list[Measurement]:
        times = timed.times
        kept = self._sampled({case.problem for case in times})
        drawn = ""
        if self.sample and TABLES[self.operator].sampled_by:
            count = sum(case.problem in kept for case in times)
            drawn = f"a sample: {count} of {len(times)} rows, those of {SAMPLE} sizes"
        device, engine, version = source
        who = f"{DISTRIBUTION} {self.package.version}, {engine} {version}"
        name = (DISTRIBUTION, self.package.version, engine.lower(), version, self.operator, slug_of(device))
        same = {
            **device_columns(device, "cuda", find_datasheet(device)),
            **{"run_id": "-".join([*name, *(["sample"] if self.sample else [])]), "protocol": who},
            **{"libraries": f"{engine} {version}", "sweep": f"imported/{self.operator}", "cache": "warm"},
            "source": source_text(who, " and ".join(timed.folders), f"{self.package.licence}, NVIDIA", drawn),
        }
        return [
            foreign_row(
                {
                    **case.facts,
                    **same,
                    "parameters": parameters_text(case.problem.parameters()),
                    "median_s": median(seconds),
                    **{"clock": case.clock, "ring_slots": case.ring_slots, "fill": case.fill},
                }
            )
            for case, seconds in times.items()
            if case.problem in kept
        ]

    def _case(self, row: Any) -> Case:
        """What a row times. LookupError says why it is not imported."""
        if not str(row.device).startswith(GPUS):
            raise LookupError(f"{row.device} is no NVIDIA GPU")
        if not (math.isfinite(row.latency) and row.latency > 0):
            raise LookupError("without a time above zero")
        try:
            return TABLES[self.operator].case(row, self.find)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LookupError(f"of sizes or data types that {self.operator} has not") from error

    def _sampled(self, problems: Set[Problem]) -> Set[Problem]:
        """Which of these problems are kept."""
        by = TABLES[self.operator].sampled_by
        if not (self.sample and by):
            return problems
        keys = {problem: " ".join(str(getattr(problem, name)) for name in by) for problem in problems}
        kept = evenly({key: float(problem.flop) for problem, key in keys.items()})
        return {problem for problem, key in keys.items() if key in kept}


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", version)]
