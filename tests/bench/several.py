"""GPUs that are not there: sessions on made-up devices, whose workers are processes without torch."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import kernels
from bench.cli.list_cases import of_datasheet
from bench.device.datasheet import datasheets
from bench.device.detect import Device
from bench.runner import options as asked
from bench.runner import rounds, worker_process
from bench.runner import run as runs
from bench.runner.cases import ChosenCases
from bench.runner.comparisons import CaseGroup
from bench.runner.options import Options, run_for
from bench.runner.rounds import Rounds
from bench.runner.run import Run
from bench.sweep.load import Case, load

ROOT = Path(__file__).parents[2]
H100 = of_datasheet(next(sheet for sheet in datasheets() if sheet.slug == "h100_sxm5"))

STAND_IN = """
import json, os, signal, sys
from bench.worker.lifeline import die_with
die_with(json.loads(sys.argv[1])["parent"])
mine = os.environ.get("CUDA_VISIBLE_DEVICES", "")
def answer(request):
    if request["do"] == "hello":
        return {"torch": "1", "triton": "2", "libraries": "none"}
    if request["do"] == "examples" and request["operator"] == "gemm":
        sizes = [{"dtype": "float32", "m": m, "n": 8, "k": 8, "layout": "NN"} for m in (1, 2, 3)]
        return {"examples": sizes}
    if request["do"] == "examples":
        return {"status": "error", "reason": "no compiler"}
    m = request["parameters"].get("m", 0)
    if os.path.exists(f"hang-{mine}-{m}"):
        open(f"here-{mine}-{m}", "w").close()  # a pipe: whoever reads it knows that this one hangs
        signal.pause()
    if request["do"] == "check":
        return {"status": "ok"}
    if os.path.exists(f"fail-{m}"):
        return {"status": "wrong", "reason": "made so"}
    return {"status": "ok", "clock": "graph", "fill": "none", "configuration": mine, "median_s": 1e-3,
            "low_s": 1e-3, "high_s": 1e-3, "samples_s": [1e-3] * 20, "launches": 10, "stop": "converged",
            "settled": True, "measure_s": 1e-3}
for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
if os.path.exists("spoil-results"):  # from now on nothing can be written there
    for folder in os.listdir("results"):
        os.rename(f"results/{folder}", folder)
        open(f"results/{folder}", "w").close()
"""
SWEEP = """\
title: Small things
source: {document: none, range: ours}
operator: gemm
implementations: cublas
cases:
  - {m: SIZES, n=k: 8, dtype: float32}
"""


def gpu(index: int) -> Device:
    values: dict[str, Any] = {"name": "Made up", "slug": "made-up", "sm_count": 2, "cache_byte": 1 << 20}
    values |= {"memory_byte": 1 << 34, "capability": (9, 0), "driver": "1", "datasheet": None}
    return Device(kind="cuda", index=index, id=f"id{index}", uuid=f"GPU-{index}", **values)


def checkout_of(worker: str, folder: Path) -> Path:
    """The folder, in which a process with this text is what a checkout has for a worker."""
    (folder / "bench" / "worker").mkdir(parents=True)
    for package in ("bench", "bench/worker"):
        (folder / package / "__init__.py").write_text("")
    shutil.copy(ROOT / "bench" / "worker" / "lifeline.py", folder / "bench" / "worker")
    (folder / "bench" / "worker" / "__main__.py").write_text(worker)
    return folder


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which workers begin from now on; no device is locked."""
    checkout_of(STAND_IN, folder)
    monkeypatch.setattr(worker_process, "ROOT", folder)
    monkeypatch.setattr(runs, "device_lock", lambda *_: nullcontext(""))
    return folder


def quick(patch: pytest.MonkeyPatch) -> None:
    """One visit a case, which is not made again for what else runs here, nor samples until it knows all."""
    once(patch)
    patch.setattr("bench.runner.merge_visits.disturbances", lambda row: [])
    patch.setitem(rounds.SAMPLING_S, "cpu", (0.05, 0.05))  # type: ignore[arg-type]
    patch.setitem(rounds.CEILING_S, "cpu", {"roof": 0.05, "probe": 0.05})  # type: ignore[arg-type]


_QUICK = """
import sys, pytest, bench.runner.merge_visits
from bench.runner import rounds
bench.runner.merge_visits.disturbances = lambda row: []
rounds.SAMPLING_S["cpu"] = 0.05, 0.05
rounds.CEILING_S["cpu"] = {"roof": 0.05, "probe": 0.05}
"""
QUICK_PYTEST = f"{_QUICK}sys.exit(pytest.main(sys.argv[1:]))"
QUICK_BENCH = f"{_QUICK}from bench.__main__ import app; app()"
"""For `python -c`: what `quick` does, before one of the commands."""


def small(folder: Path, sizes: list[int]) -> list[Case]:
    (folder / "sweeps").mkdir(exist_ok=True)
    path = folder / "sweeps" / "small.yaml"
    path.write_text(SWEEP.replace("SIZES", str(sizes)))
    return load(path, kernels.problem, 2, path.parent).cases


def planned(rounds: Rounds, cases: Sequence[Case], compared: Sequence[CaseGroup] | None = None) -> None:
    """Plan these cases in this order; unless they are compared, each by itself."""
    others = [case for case in cases if case.role == "measurement"]
    alone = [CaseGroup((case,)) for case in others]
    rounds.plan(
        [case for case in cases if case.role != "measurement"], alone if compared is None else compared
    )


def once(patch: pytest.MonkeyPatch, visits: int = 1) -> None:
    """Runs make so many visits to a case, where its interval is narrow, instead of three."""
    patch.setattr(runs, "SEVERAL", visits)


def opened(folder: Path, cases: list[Case], index: int = 0, **settings: Any) -> Run:
    """A run on a GPU, planned."""
    run = Run(gpu(index), folder / "results", **{"precision": 9.0} | settings)
    run.open()
    planned(run.rounds, cases)
    return run


def begun(folder: Path, monkeypatch: pytest.MonkeyPatch, cases: list[Case], **options: Any) -> Run:
    """A run of one visit to these cases, planned. There is no GPU to have ceilings."""
    once(monkeypatch)
    monkeypatch.setattr(asked, "detect", lambda wanted: gpu(0))
    monkeypatch.setattr(asked, "chosen_cases", lambda *_: ChosenCases(cases))
    run = run_for(Options(results=folder / "results", **{"precision": "99%"} | options), kernels.problem)
    run.plan(run.order(run.cases))
    return run
