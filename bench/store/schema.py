"""The columns of a result row: each declared once, with its meaning, and how several visits are joined.

Facts only: seconds, FLOP, bytes, clocks. Rates, roofs and verdicts are derived from them elsewhere.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from bench.case_name import case_key

SCHEMA = 2
"""Raised when a column changes its meaning or name; new nullable columns do not raise it.

2: `role`, and the sweeps' plots in the file's metadata. Files and journals of schema 1 are still read
(bench/store/schema_1.py).
"""

Status = Literal[
    "ok", "wrong", "escaped", "unsupported", "skipped", "out_of_memory", "timeout", "crashed", "error"
]


JOB_IDS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "GITHUB_RUN_ID", "CI_JOB_ID")
"""Environment variables by which schedulers and CI services tell a job its number."""
Over = Literal["first", "last", "least", "most", "mean", "sum", "every"]
"""What becomes of a column when a case's visits are joined into one row (bench/runner/rows.py)."""


def column(says: str, over: Over = "first", **default: Any) -> Any:
    """A field of Measurement with the line that documents it, and how several visits' values are joined."""
    return dataclasses.field(metadata={"says": says, "over": over}, **default)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What happened to one case: one row. Every fact that a comparison or a plot needs is in it."""

    # identity of the run and the device
    schema: int = column("number of this schema", default=SCHEMA)
    run_id: str = column("UTC start of the run and commit; the file's name")
    utc: str = column("when this case ended, ISO 8601; empty if unknown (imported)", over="last")
    commit: str = column("git commit of roofbench, `+` behind it if files differed; empty if unknown")
    device: str = column("slug of the device; the folder's name")
    device_name: str = column("the device as its driver or the kernel calls it")
    device_kind: str = column("cpu | cuda")
    device_id: str = column("hash of the GPU's UUID, or of the host on a CPU")
    sm_count: int = column("streaming multiprocessors; cores on a CPU")
    cache_byte: int = column("last-level cache, bytes: L2 of a GPU, L3 of a CPU")
    threads: int = column("CPU threads that compute; 1 on a GPU")
    driver: str = column("version of the GPU driver; the kernel's release on a CPU")
    torch: str = column("version of torch")
    triton: str = column("version of Triton; empty if absent")
    libraries: str = column("what computes: CUDA and cuDNN, or MKL and oneDNN, with versions")
    host: str | None = column(
        "name of the machine; null if unknown. --bench-anonymous makes hashes of this and the next three",
        default=None,
    )
    pci_bus: str | None = column("PCI address of the GPU, as 0000:1b:00.0", default=None)
    gpu_uuid: str | None = column(
        "UUID of the GPU, or of the MIG slice of it that was measured", default=None
    )
    serial: str | None = column("serial number of the GPU's board; null if it tells none", default=None)
    job_id: str | None = column(
        "the job that this run was part of, as `SLURM_JOB_ID=4711`: the first that is set of "
        + ", ".join(JOB_IDS),
        default=None,
    )
    tags: str | None = column(
        "what --bench-tag said of the run, as JSON, keys sorted; null if nothing", default=None
    )
    source: str | None = column(
        "null: measured by roofbench; else who measured it, then package or file, version and licence",
        default=None,
    )
    # identity of the case
    sweep: str = column("the sweep's path under sweeps/, without .yaml")
    role: str = column(
        "what the sweep's rows are for: measurement | roof | probe | calibration; the last three are ceilings"
    )
    operator: str = column("operator: a folder of kernels/")
    implementation: str = column("what ran: cublas, onednn, triton, ...")
    arithmetic: str = column("matrix | vector: which units bound it")
    rate: str = column("flop | byte: what people quote")
    dtype: str = column("data type of the operands")
    parameters: str = column("all parameters as JSON, keys sorted; on disk also one column each")
    # protocol
    protocol: str = column("hash of every setting that can change a time; the code is told by commit")
    clock: str = column("graph | stream | host | simulated")
    protocol_version: str | None = column("name of the protocol, p2 and so on", default=None)
    regime: str | None = column(
        "sustained: the device is kept loaded; boost: bursts after a rest. Never mixed", default=None
    )
    visit: int = column(
        "in a journal: the how manieth look at this case; in a result file 0, all visits being one row "
        "(older files: 1 where a ceiling was measured again)",
        default=0,
    )
    cache: str = column("cold: each launch finds its data in memory; warm: in cache if they fit")
    threads_asked: str | None = column("all | one: the processors that the case may use (CPU)", default=None)
    fill: str = column("distribution of the inputs")
    seed: int = column("seed of the inputs")
    # what came of it
    status: str = column("ok, or why there is no time: " + ", ".join(typing.get_args(Status)[1:]))
    reason: str = column("one sentence where status is not ok", default="")
    configuration: str = column("what the implementation chose, e.g. its tile", default="")
    passed_over: str | None = column(
        "configurations that do not compile or do not fit the device and so were not chosen from, each with "
        "the reason; null if there were none",
        default=None,
    )
    kernels: str | None = column(
        "the kernels that one launch runs with their grids, as its captured graph says (GPU)", default=None
    )
    # timing; null without a time
    median_s: float | None = column("median seconds of one launch", default=None)
    low_s: float | None = column("lower end of the 95 % interval of the median", default=None)
    high_s: float | None = column("upper end", default=None)
    samples_s: list[float] | None = column("every sample, seconds per launch, in time order", default=None)
    launches: int | None = column("launches in one sample", default=None)
    stop: str | None = column(
        "why sampling ended: converged | budget | samples | visits (they do not agree)", default=None
    )
    settled: bool | None = column(
        "whether window medians agreed before sampling, on every visit", over="least", default=None
    )
    settle_s: float | None = column("seconds of settling, all visits together", over="sum", default=None)
    step_s: float | None = column(
        "the clock's step, or clock_start_s if that is more, divided by the launches of a sample",
        default=None,
    )
    clock_start_s: float | None = column(
        "seconds between the events of a sample that no launch accounts for, as measured: the start of a "
        "graph, or an empty pair of events; not subtracted (GPU)",
        over="most",
        default=None,
    )
    late_samples: int | None = column(
        "samples thrown away and taken again, since the host was not done queueing when they began (GPU)",
        over="sum",
        default=None,
    )
    visits: int | None = column(
        "visits, spread over the run, whose samples are published; each built, settled and timed anew",
        default=None,
    )
    visit_samples: list[int] | None = column(
        "samples of each of them: samples_s is theirs, one visit after the other", default=None
    )
    visit_at_s: list[float] | None = column(
        "seconds from the run's start to the end of each of them", default=None
    )
    set_aside: list[str] | None = column(
        "why other visits are not published, a reason each: contended, stolen, throttled, earlier, ...",
        default=None,
    )
    set_aside_s: list[float] | None = column("the median of each visit set aside", default=None)
    ring_slots: int | None = column("sets of tensors that the launches take turns on", default=None)
    ring_byte: int | None = column("bytes those sets hold together", default=None)
    flushed: bool | None = column("whether the cache was flushed before each turn of the ring", default=None)
    enqueue_s: float | None = column("host seconds to queue one launch (GPU)", over="mean", default=None)
    # correctness
    relative_error: float | None = column(
        "max |error| / max |reference|, float64, the worst of all checks", over="most", default=None
    )
    tolerance: float | None = column(
        "what the arithmetic explains; more is status wrong", over="most", default=None
    )
    # counts of one launch
    flop: int = column("floating-point operations")
    byte: int = column("bytes if each input is read and each output written once")
    byte_written: int = column("the written part of byte")
    byte_moved: int = column("bytes this implementation must move")
    byte_again: int | None = column(
        "the part of byte_moved that is read a second time, so perhaps from cache", default=None
    )
    moved_written: int | None = column("the written part of byte_moved", default=None)
    product_m: int | None = column(
        "rows of the matrix product that this is; null if it is none", default=None
    )
    product_n: int | None = column("its columns", default=None)
    product_k: int | None = column("the sums of each of its elements", default=None)
    special_functions: int | None = column(
        "exponentials, reciprocals, roots and tangents at least", default=None
    )
    # state of the machine while timing; of several visits the worst, unless said otherwise
    sm_clock_before_hz: float | None = column("SM clock before timing (GPU)", over="mean", default=None)
    sm_clock_hz: float | None = column("SM clock just after timing (GPU)", over="mean", default=None)
    memory_clock_hz: float | None = column("memory clock after timing (GPU)", over="mean", default=None)
    power_w: float | None = column(
        "mean power while timing by the energy counter; of less than 1 s, or bursts: just after it (GPU)",
        over="mean",
        default=None,
    )
    energy_j: float | None = column(
        "energy while timing, rests included; null for less than 1 s (GPU)", over="sum", default=None
    )
    temperature_c: float | None = column("temperature after timing (GPU)", over="most", default=None)
    limit_reasons: str | None = column(
        "why the clock was held back just after timing, as NVML says (GPU)", over="every", default=None
    )
    held_power: float | None = column(
        "share of the time in which the power limit held the clock, from NVML's counter (GPU)",
        over="most",
        default=None,
    )
    held_thermal: float | None = column(
        "the same for heat, slowed by software or by hardware (GPU)", over="most", default=None
    )
    held_hardware: float | None = column(
        "the same for the hardware's power brake (GPU)", over="most", default=None
    )
    held_sync: float | None = column("the same for sync boost (GPU)", over="most", default=None)
    foreign_processes: int | None = column(
        "other processes with a context on the GPU, before or after timing; null if none is listed",
        over="most",
        default=None,
    )
    concurrent_gpus: int | None = column(
        "GPUs that this run timed at the same time, 1 unless asked; null in older files (GPU)",
        default=None,
    )
    persistence: str | None = column("persistence mode, on | off (GPU)", default=None)
    ecc: str | None = column("ECC, on | off (GPU)", default=None)
    mig: str | None = column("MIG, on | off (GPU)", default=None)
    power_limit_w: float | None = column("enforced power limit (GPU)", over="least", default=None)
    pressure: float | None = column(
        "share of the time in which a task of the machine, or of the control group, waited to run (CPU)",
        over="most",
        default=None,
    )
    steal: float | None = column(
        "share of processor time the hypervisor took (CPU)", over="most", default=None
    )
    throttled: float | None = column(
        "share of the time in which a control group's quota held threads back, at most 1 (CPU)",
        over="most",
        default=None,
    )
    on_processor: float | None = column(
        "processor time of the timing thread over wall time: less than 1, it waited (CPU)",
        over="least",
        default=None,
    )
    involuntary_switches: int | None = column(
        "times the timing process was made to give way (CPU)", over="sum", default=None
    )
    governor: str | None = column("frequency governor, empty if the kernel tells none (CPU)", default=None)
    sentinel_before_s: float | None = column(
        "seconds of a fixed 256^3 float32 GEMM just before timing: the machine's speed then (CPU)",
        over="mean",
        default=None,
    )
    sentinel_after_s: float | None = column("the same just after timing (CPU)", over="mean", default=None)
    sentinel_moved: float | None = column(
        "largest change of that time from before to after, as a share of the smaller (CPU)",
        over="most",
        default=None,
    )
    # where the wall time went
    setup_s: float | None = column(
        "building inputs and launches, compiling, tuning", over="sum", default=None
    )
    tuning_s: float | None = column(
        "the part of setup_s in which a configuration was chosen; 0 where an earlier choice was known",
        over="sum",
        default=None,
    )
    check_s: float | None = column("checking before and after", over="sum", default=None)
    measure_s: float | None = column("settling and sampling", over="sum", default=None)

    @property
    def case(self) -> str:
        """What was measured, apart from when and on what: equal for the same case of any two runs."""
        return case_key(
            self.sweep, self.operator, self.implementation, self.parameters, self.cache, self.threads_asked
        )


FIELDS = {f.name: f for f in dataclasses.fields(Measurement)}


def _arrow_schema() -> pa.Schema:
    arrow = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    arrow |= {list[float]: pa.list_(pa.float64()), list[int]: pa.list_(pa.int64())}
    arrow[list[str]] = pa.list_(pa.string())
    columns = []
    for name, hint in typing.get_type_hints(Measurement).items():
        if name not in FIELDS:
            continue
        kinds = [k for k in typing.get_args(hint) if k is not type(None)]
        optional = type(None) in typing.get_args(hint)
        columns.append(pa.field(name, arrow[kinds[0] if optional else hint], nullable=optional))
    return pa.schema(columns)


ARROW = _arrow_schema()


def record(row: Measurement) -> dict[str, Any]:
    """A row as plain values, by column. Text that is no Unicode (a lone surrogate) gets `?` in its place."""
    return {name: _plain(getattr(row, name)) for name in FIELDS}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
