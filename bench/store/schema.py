"""The columns of a result row: each declared once, with its meaning, and how several visits are joined.

Facts only: seconds, FLOP, bytes, clocks. Rates, roofs and verdicts are derived from them elsewhere.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.case_name import case_key
from bench.sampling.publish import median_of

SCHEMA = 2
"""Raised when a column changes its meaning or name; new nullable columns do not raise it.

2: `role`, and the sweeps' plots in the file's metadata.
"""
READABLE = f"this checkout reads schema {SCHEMA}; commit 1b5c065 reads schema 1, too"
"""What a refusal of another schema says of those that can be read."""

Status = Literal[
    "ok", "wrong", "escaped", "unsupported", "skipped", "out_of_memory", "timeout", "crashed", "error"
]


JOB_IDS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "GITHUB_RUN_ID", "CI_JOB_ID")
"""Environment variables in which schedulers and CI services put the number of a job."""


_PARTS = 5
"""Parts that the time of a visit is cut into for `quickest_s`."""
Over = Literal["first", "last", "least", "middle", "most", "mean", "sum", "every"]
"""How a column is reduced when a case's visits are joined into one row (bench/runner/merge_visits.py)."""


def column(says: str, over: Over = "first", **default: Any) -> Any:
    """A field of Measurement with its documentation, and how the values of several visits are joined."""
    return dataclasses.field(metadata={"says": says, "over": over}, **default)


def nullable(says: str, over: Over = "first") -> Any:
    """A column that is null where its value is unknown or has no meaning."""
    return column(says, over, default=None)


least, most, mean = (partial(nullable, over=over) for over in ("least", "most", "mean"))
total, every = (partial(nullable, over=over) for over in ("sum", "every"))
"""Nullable columns, by how the values of several visits are joined."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One row: the outcome of one case, with every fact that a comparison or a plot needs."""

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
    environment: str | None = nullable(
        "what chose the code that computed: variables and settings of libraries that were set, as "
        "`MKL_CBWR=COMPATIBLE`, and the instructions that torch uses, as `cpu_capability=AVX2`; null: unknown"
    )
    host: str | None = nullable("name of the machine; older files may have hashes here and in the next three")
    pci_bus: str | None = nullable("PCI address of the GPU, as 0000:1b:00.0")
    gpu_uuid: str | None = nullable("UUID of the GPU, or of the MIG slice of it that was measured")
    serial: str | None = nullable("serial number of the GPU's board; null if it tells none")
    boot: str | None = nullable("hash of the kernel's boot id, new whenever the machine starts")
    job_id: str | None = nullable(
        "the job that this run was part of, as `SLURM_JOB_ID=4711`: the first that is set of "
        + ", ".join(JOB_IDS)
    )
    tags: str | None = nullable("what ROOFBENCH_TAGS said of the run, as JSON, keys sorted; null if nothing")
    source: str | None = nullable(
        "null: measured by roofbench; else who measured it, then package or file, version and licence"
    )
    timed_by: str | None = nullable("imported times: kernel (a profiler's, no launches) | events | wall")
    statistic: str | None = nullable("what an imported time is of several: median | mean | minimum")
    clocks: str | None = nullable("whether the clocks were fixed for an imported time: fixed | free")
    time_includes: str | None = nullable(
        "what an imported time holds besides the kernels: launch, gaps, autograd, allocation, synchronization"
    )
    # identity of the case
    sweep: str = column("the sweep's path under sweeps/, without .yaml")
    role: str = column("what the sweep's rows are: measurement, or a ceiling: roof | probe | calibration")
    operator: str = column("operator: a folder of kernels/")
    implementation: str = column("what ran: cublas, onednn, triton, ...")
    arithmetic: str = column("matrix | vector | sparse | 8-bit: which units bound it; link | latency: none")
    rate: str = column("flop | byte: what people quote")
    dtype: str = column("data type of the operands")
    parameters: str = column("all parameters as JSON, keys sorted; on disk also one column each")
    measured_in: str | None = nullable(
        "in files up to November 28, 2026: the earlier run of this unit that measured this ceiling, which "
        "this run took over; null: measured in this run"
    )
    # protocol
    protocol: str = column("hash of every setting that can change a time; the commit identifies the code")
    clock: str = column("graph | stream | host | simulated")
    protocol_version: str | None = nullable("name of the protocol, p2 and so on")
    regime: str | None = nullable(
        "sustained: the device is kept loaded; older files: boost, bursts after a rest. Never mixed"
    )
    visit: int = column(
        "in a journal: index of this visit to the case, from 0; in a result file 0, all visits being one row "
        "(older files: 1 where a ceiling was measured again)",
        default=0,
    )
    cache: str = column("cold: each launch finds its data in memory; warm: in cache if they fit")
    threads_asked: str | None = nullable("all | one: the processors that the case may use (CPU)")
    fill: str = column("distribution of the inputs")
    seed: int = column("seed of the inputs")
    # outcome
    status: str = column("ok, or why there is no time: " + ", ".join(typing.get_args(Status)[1:]))
    reason: str = column("one sentence where status is not ok", default="")
    configuration: str = column("what the implementation chose, e.g. its tile", default="")
    passed_over: str | None = nullable(
        "configurations that do not compile, do not fit the device or cannot be captured and so were not "
        "chosen from, and kernels that got stuck earlier in the run, each with the reason; "
        "null if there were none"
    )
    kernels: str | None = nullable("kernels of one launch with their grids, as its captured graph says (GPU)")
    # timing; null without a time
    median_s: float | None = nullable("median seconds of one launch")
    low_s: float | None = nullable(
        "lower end of the published interval: where 95 of 100 other runs would find the median"
    )
    high_s: float | None = nullable("its upper end")
    run_low_s: float | None = nullable(
        "lower end of the within-run interval: where 95 of 100 further visits of this run would find the case"
    )
    run_high_s: float | None = nullable("its upper end")
    run_half: float | None = nullable("natural logarithm: half of the median's 95 % interval within the run")
    run_by: str | None = nullable("what tells these three: visits | assumed (no case was visited twice)")
    noise_visits: float | None = nullable(
        "natural logarithm: what run_half would be by the scatter of the run's other cases of such work alone"
    )
    noise_runs: float | None = nullable(
        "natural logarithm: what low_s and high_s hold, as squares, of the noise between runs; null: nothing"
    )
    noise_by: str | None = nullable("what tells it: history (earlier runs) | assumed (usual of such work)")
    samples_s: list[float] | None = nullable("every sample, seconds per launch, in time order")
    launches: int | None = nullable("launches in one sample")
    stop: str | None = nullable("why sampling ended: converged | budget | samples | visits (which disagree)")
    settled: bool | None = nullable("whether windows agreed before sampling, on most of the visits", "middle")
    settle_s: float | None = total("seconds of settling, all visits together")
    step_s: float | None = nullable("clock's step, or clock_start_s if more, divided by a sample's launches")
    clock_start_s: float | None = most(
        "seconds between the events of a sample that no launch accounts for, as measured: the start of a "
        "graph, or an empty pair of events; not subtracted (GPU). Of imported times what the "
        "launch in them takes: the shortest of their device and source, or less"
    )
    late_samples: int | None = total("samples taken again, as the host still queued when they began (GPU)")
    visits: int | None = nullable("published visits, spread over the run, each built, settled and timed anew")
    visit_samples: list[int] | None = nullable("samples of each of them, one visit after the other")
    visit_at_s: list[float] | None = nullable("seconds from the run's start to the end of each of them")
    set_aside: list[str] | None = nullable("why others are not published, one by one: contended, stolen, ...")
    set_aside_s: list[float] | None = nullable("the median of each visit set aside")
    ring_slots: int | None = nullable("sets of tensors that the launches take turns on")
    ring_byte: int | None = nullable("bytes those sets hold together")
    flushed: bool | None = nullable("whether the cache was flushed before each turn of the ring")
    enqueue_s: float | None = mean("host seconds to queue one launch (GPU)")
    peak_byte: int | None = most(
        "bytes that one launch holds at most in addition to its inputs: outputs, workspaces and what a call "
        "allocates meanwhile, by torch's allocator (GPU); on a CPU, of training steps only, by their tensors"
    )
    # parts of the time of one launch, by torch's profiler in calls of their own after the samples
    contraction_s: float | None = mean("seconds of matrix products and convolutions in one launch")
    normalization_s: float | None = mean("seconds of norms and softmax")
    elementwise_s: float | None = mean("seconds of everything else that computes or copies")
    parts_by: str | None = nullable(
        "whose seconds these are: of the kernels that torch's operators launched (GPU), or of the operators "
        "themselves (CPU). They leave out what autograd and Python take; null where they were not requested, "
        "or not known. `not divided: ...` says why there are none"
    )
    # correctness
    relative_error: float | None = most(
        "largest error over largest reference value, both absolute, in float64; the worst check"
    )
    tolerance: float | None = most("what the arithmetic explains; more is status wrong")
    # counts of one launch
    flop: int = column("floating-point operations")
    byte: int = column("bytes if each input is read and each output written once")
    byte_written: int = column("the written part of byte")
    byte_moved: int = column("bytes this implementation must move")
    byte_again: int | None = nullable("the part of byte_moved that is read a second time, perhaps from cache")
    moved_written: int | None = nullable("the written part of byte_moved")
    byte_beside: int | None = nullable(
        "the part of byte_moved that kernels without matrix arithmetic move, before or after those with it; "
        "null if there are no such kernels"
    )
    product_m: int | None = nullable("rows of the matrix product that this is; null if it is none")
    product_n: int | None = nullable("its columns")
    product_k: int | None = nullable("the sums of each of its elements")
    special_functions: int | None = nullable("exponentials, reciprocals, roots and tangents at least")
    # state of the machine while timing; of several visits the worst, unless said otherwise
    sm_clock_before_hz: float | None = mean("SM clock before timing (GPU)")
    sm_clock_hz: float | None = mean("SM clock just after timing (GPU)")
    memory_clock_hz: float | None = mean("memory clock after timing (GPU)")
    power_w: float | None = mean(
        "mean power while timing by the energy counter; of less than 1 s, or bursts: just after it (GPU)"
    )
    energy_j: float | None = total("energy while timing, rests included; null for less than 1 s (GPU)")
    temperature_c: float | None = most("temperature after timing (GPU)")
    limit_reasons: str | None = every("why the clock was held back just after timing, as NVML says (GPU)")
    held_power: float | None = most("share of the time that the power limit held the clock, by NVML (GPU)")
    held_thermal: float | None = most("the same for heat, slowed by software or by hardware (GPU)")
    held_hardware: float | None = most("the same for the hardware's power brake (GPU)")
    held_sync: float | None = most("the same for sync boost (GPU)")
    foreign_processes: int | None = most("other processes with a context on the GPU, before or after timing")
    concurrent_gpus: int | None = nullable("GPUs that were timed at the same time; null in older files (GPU)")
    persistence: str | None = nullable("persistence mode, on | off (GPU)")
    ecc: str | None = nullable("ECC, on | off (GPU)")
    mig: str | None = nullable("MIG, on | off (GPU)")
    power_limit_w: float | None = least("enforced power limit (GPU)")
    pcie_generation: int | None = least("generation of the PCIe link to the host just after timing (GPU)")
    pcie_width: int | None = least("lanes of that link")
    pcie_generation_most: int | None = nullable("the highest generation that the GPU itself can do")
    pressure: float | None = most(
        "share of the time in which a task of the machine, or of the control group, waited to run (CPU)"
    )
    steal: float | None = most("share of processor time the hypervisor took (CPU)")
    throttled: float | None = most("share of the time that a control group's quota held threads back (CPU)")
    on_processor: float | None = least(
        "processor time of the timing thread over wall time: less than 1, it waited (CPU)"
    )
    involuntary_switches: int | None = total("up to November 28, 2026: times that it gave way (CPU)")
    governor: str | None = nullable("frequency governor, empty if the kernel tells none (CPU)")
    sentinel_before_s: float | None = mean("up to November 28, 2026: seconds of a GEMM before timing (CPU)")
    sentinel_after_s: float | None = mean("the same just after timing (CPU)")
    sentinel_moved: float | None = most("the change from one to the other, as a share of the smaller (CPU)")
    # where the wall time went
    setup_s: float | None = total("building inputs and launches, compiling, tuning")
    tuning_s: float | None = total(
        "the part of setup_s in which a configuration was chosen; 0 where an earlier choice was known"
    )
    check_s: float | None = total("checking before and after")
    measure_s: float | None = total("settling and sampling")

    @property
    def is_timed(self) -> bool:
        """Whether it has a time: the case went well, and its median is above zero and finite."""
        return self.status == "ok" and self.median_s is not None and 0 < self.median_s < math.inf

    @property
    def visit_samples_s(self) -> list[npt.NDArray[np.float64]]:
        """The samples of each visit, seconds; in one part if the row does not tell visits apart."""
        if not self.samples_s:
            return []
        samples_s = np.asarray(self.samples_s, dtype=np.float64)
        counts = self.visit_samples or []
        if sum(counts) != samples_s.size:
            counts = [samples_s.size]
        return [part for part in np.split(samples_s, np.cumsum(counts, dtype=np.int64)) if part.size]

    @property
    def quickest_s(self) -> float:
        """Median of the quickest fifth of any of its visits; the row's if samples are few; 0 without a time.

        A roof is what a device was seen to keep up, and clocks move: on the machine this was written on, wide
        vector instructions run at two speeds 9 % apart, for seconds each. The median may miss the faster.
        """
        parts = [
            median_of(part)
            for visit in self.visit_samples_s
            if len(visit) >= 2 * _PARTS
            for part in np.array_split(visit, _PARTS)
        ]
        return min(parts, default=float(self.median_s or 0.0))

    @property
    def case(self) -> str:
        """Key of the case, without time and device: equal for the same case in any two runs."""
        return case_key(
            self.sweep, self.operator, self.implementation, self.parameters, self.cache, self.threads_asked
        )


class RunKey(NamedTuple):
    """What tells runs apart: units of one kind that begin in the same second have the same `run_id`."""

    device: str
    device_id: str
    """Empty where it is unknown, as of imported rows."""
    run_id: str

    @classmethod
    def of(cls, row: Any) -> RunKey:
        """The run of a row: of a Measurement, or of whatever else has these columns."""
        return cls(row.device, row.device_id or "", row.run_id)


def run_names(runs: Collection[RunKey]) -> dict[RunKey, str]:
    """The name of each run for people: its id, and where units of a device share that, its unit behind it."""
    sharing = Counter((run.device, run.run_id) for run in runs)
    return {
        run: f"{run.run_id}-{run.device_id[:8]}" if sharing[run.device, run.run_id] > 1 else run.run_id
        for run in runs
    }


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
WITHOUT_SAMPLES = tuple(
    column.name
    for column in ARROW
    if not pa.types.is_list(column.type) or pa.types.is_string(column.type.value_type)
)
"""All columns but lists of numbers, which are most of a file."""
