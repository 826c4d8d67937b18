"""Who may import whom: data flows one way, and only the worker needs torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

EDGES = {"conftest.py", "bench/__main__.py", "bench/test_benchmark.py", "bench/measure/worker.py"}
"""May import everything."""

ALLOWED = {
    "bench/spec.py": set[str](),
    "bench/yaml_lines.py": set[str](),
    "bench/torch_build.py": set[str](),
    "bench/sweep": {"bench.spec", "bench.yaml_lines", "bench.sweep"},
    "bench/store.py": {"bench.seal", "bench.spec"},
    "bench/datasheet.py": {"bench.spec"},
    "bench/dependencies.py": set[str](),
    "bench/device.py": {"bench.spec", "bench.datasheet"},
    "bench/doctor": {
        *("bench.agreement", "bench.asking", "bench.attended", "bench.datasheet", "bench.dependencies"),
        *("bench.device", "bench.doctor", "bench.fitness", "bench.measure", "bench.plugin", "bench.report"),
        *("bench.row", "bench.spec", "bench.sweep", "kernels"),
    },
    "bench/lock.py": set[str](),
    # A process of its own.
    "bench/measure/instruments.py": {"bench.dependencies", "bench.spec", "bench.measure", "kernels"},
    "bench/measure/process.py": {"bench.dependencies", "bench.measure"},
    "bench/measure": {"bench.spec", "bench.measure"},
    "bench/measure/coverage": {"bench.spec", "bench.measure", "bench.store", "bench.judge.flags"},
    "bench/model": {"bench.spec", "bench.store", "bench.device", "bench.datasheet", "bench.model"},
    "bench/judge": {"bench.store", "bench.device", "bench.model", "bench.judge"},
    "bench/schedule.py": {"bench.spec"},
    "bench/price.py": {"bench.measure.sampling", "bench.schedule", "bench.spec"},
    "bench/planner.py": {
        *("bench.asking", "bench.device", "bench.measure.sampling", "bench.model", "bench.pace"),
        *("bench.price", "bench.schedule", "bench.spec", "bench.sweep"),
    },
    "bench/report_plan.py": {"bench.planner", "bench.price", "bench.report"},
    "bench/listing.py": {
        *("bench.asking", "bench.datasheet", "bench.device", "bench.measure.sampling", "bench.model"),
        *("bench.planner", "bench.report", "bench.report_plan", "bench.sweep"),
    },
    "bench/overhead.py": {
        *("bench.device", "bench.journal", "bench.listing", "bench.measure.process", "bench.session"),
        *("bench.spec", "bench.store", "bench.sweep"),
    },
    "bench/predicting.py": {
        *("bench.datasheet", "bench.model", "bench.report", "bench.spec", "bench.store", "bench.sweep"),
    },
    "bench/report.py": {"bench.judge", "bench.model", "bench.spec", "bench.store"},
    "bench/first_minutes": {
        *("bench.dependencies", "bench.device", "bench.first_minutes", "bench.left", "bench.lock"),
        *("bench.measure.process", "bench.report", "bench.row", "bench.spec", "bench.store"),
    },
    "bench/first_minutes/on_device.py": {  # of a process of its own
        *("bench.device", "bench.first_minutes", "bench.measure", "bench.spec", "kernels"),
    },
    "bench/exporting": {"bench.exporting", "bench.judge", "bench.model", "bench.store"},
    "bench/importing": {"bench.datasheet", "bench.importing", "bench.spec", "bench.store", "bench.sweep"},
    "bench/attended.py": {"bench.device", "bench.measure.process"},
    "bench/giving_up.py": {"bench.model.ceilings", "bench.store", "bench.sweep"},
    "bench/itinerary.py": set[str](),
    "bench/journal.py": {"bench.store"},
    "bench/pace.py": {"bench.schedule"},
    "bench/report_compare.py": {"bench.judge", "bench.report"},
    "bench/row.py": {"bench.device", "bench.measure.sampling", "bench.spec", "bench.store", "bench.sweep"},
    "bench/seal.py": set[str](),
    "bench/visits.py": {
        *("bench.judge.flags", "bench.measure.sampling", "bench.model.ceilings"),
        *("bench.spec", "bench.store"),
    },
    "bench/agreement.py": set[str](),
    "bench/asking.py": {
        *("bench.device", "bench.measure.sampling", "bench.model", "bench.schedule", "bench.spec"),
        "bench.sweep",
    },
    "bench/columns.py": {"bench.store"},
    "bench/cover.py": set[str](),
    "bench/fitness.py": {"bench.device", "bench.measure.nvml"},
    "bench/left.py": {"bench.journal", "bench.shard", "bench.store", "bench.visits"},
    "bench/shard.py": set[str](),
    "bench/walking.py": {"bench.attended", "bench.session", "bench.store", "bench.sweep"},
    "bench/session.py": {
        *("bench.asking", "bench.left", "bench.shard"),
        *(
            "bench.attended",
            "bench.device",
            "bench.giving_up",
            "bench.itinerary",
            "bench.journal",
            "bench.lock",
        ),
        *("bench.measure.sampling", "bench.model", "bench.pace", "bench.planner", "bench.row"),
        *("bench.schedule", "bench.spec", "bench.store", "bench.sweep", "bench.visits"),
    },
    "bench/plugin.py": {
        *("bench.sweep", "bench.dependencies", "bench.device", "bench.judge", "bench.lock", "bench.model"),
        *("bench.cover", "bench.measure.process", "bench.planner", "bench.report", "bench.report_plan"),
        "bench.session",
        "bench.shard",
        *("bench.spec", "bench.store", "bench.sweep", "bench.visits", "bench.walking"),
    },
    "kernels": {"bench.spec", "kernels"},
    "bench/nightly.py": {"bench.dependencies", "bench.device", "bench.fitness", "bench.judge", "bench.store"},
    "bench/report_nightly.py": {"bench.judge", "bench.nightly", "bench.report"},
    "bench/report_ceilings.py": {"bench.datasheet", "bench.model", "bench.report"},
    "bench/report_score.py": {"bench.judge", "bench.report"},
    "plots/__main__.py": {
        *(
            "bench.dependencies",
            "bench.store",
            "bench.datasheet",
            "bench.judge",
            "bench.report_score",
            "plots",
        ),
    },
    "plots": {"bench.store", "bench.device", "bench.datasheet", "bench.model", "bench.judge", "plots"},
}
"""File or folder -> what of ours it may import; the longest match counts."""

NO_TORCH = [
    *("bench.spec", "bench.sweep", "bench.store", "bench.device", "bench.session", "bench.plugin"),
    *("bench.report", "bench.listing", "bench.model.ceilings", "bench.model.roofline", "bench.judge.flags"),
    *("bench.first_minutes.facts", "bench.first_minutes.running"),
    *("bench.dependencies", "bench.lock", "bench.overhead", "bench.measure.process", "bench.report_compare"),
    *("bench.agreement", "bench.giving_up"),
    *("bench.doctor.command", "bench.doctor.child", "bench.doctor.driver", "bench.doctor.packages"),
    *("bench.doctor.operators", "bench.doctor.survival", "bench.doctor.capture", "bench.doctor.libraries"),
    *("bench.doctor.rates", "bench.doctor.forecast", "bench.measure.fault"),
    *("bench.report_score", "bench.judge.score", "bench.judge.speedup"),
    *("bench.model.structure", "bench.model.calibration", "bench.model.levels", "bench.model.one_tile"),
    *("bench.model.transfer", "bench.model.known", "bench.predicting"),
    *("bench.importing.aiconfigurator", "bench.importing.csv_file", "bench.exporting.formats"),
    *("bench.judge.gathering", "bench.judge.history", "bench.judge.change_points"),
    *("bench.nightly", "bench.report_nightly", "bench.fitness", "bench.walking", "plots.history"),
    *("bench.__main__", "plots.__main__", "conftest"),
    *(f"kernels.{p.parent.name}.problem" for p in sorted((ROOT / "kernels").glob("*/problem.py"))),
]


def files() -> list[str]:
    return sorted(
        str(p.relative_to(ROOT))
        for folder in ("bench", "kernels", "plots")
        for p in (ROOT / folder).rglob("*.py")
        if str(p.relative_to(ROOT)) not in EDGES
    )


def imported(source: str) -> set[str]:
    """Modules of ours that a source text imports at run time, wherever in the file."""
    found = set()
    tree = ast.parse(source)
    checking = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in checking:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            module = node.module or ""
            named = {f"{module}.{alias.name}" for alias in node.names}
            found |= {name if is_module(name) else module for name in named}
    return {name for name in found if name.split(".")[0] in ("bench", "kernels", "plots", "tests")}


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()


def rule(path: str) -> set[str]:
    return ALLOWED[max((key for key in ALLOWED if path.startswith(key)), key=len)]


def breaches(path: str, source: str) -> set[str]:
    if path in ("bench/__init__.py", "kernels/__init__.py"):
        return {name for name in imported(source) if name != "bench.spec"}
    allowed = rule(path)
    return {
        n for n in imported(source) if not any(n == a or n.startswith((f"{a}.", f"{a}_")) for a in allowed)
    }


@pytest.mark.parametrize("path", files())
def test_imports_only_what_it_may(path: str) -> None:
    assert not breaches(path, (ROOT / path).read_text())


def test_the_rule_can_be_broken() -> None:
    assert breaches("kernels/gemm/operator.py", "from bench.store import read") == {"bench.store"}
    assert breaches("bench/model/roofline.py", "def f():\n    import kernels.gemm") == {"kernels.gemm"}
    assert breaches("bench/session.py", "from kernels import names") == {"kernels"}
    with pytest.raises(AssertionError):
        breaches("bench/store.py", "from . import spec")


def brings(module: str, other: str) -> bool:
    """Whether importing a module in a fresh interpreter imports another package."""
    code = f"import sys, {module}; sys.exit(any(m.split('.')[0] == {other!r} for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1) and not done.stderr, done.stderr
    return done.returncode == 1


@pytest.mark.parametrize("module", NO_TORCH)
def test_needs_no_torch(module: str) -> None:
    assert not brings(module, "torch")


def test_the_worker_does_need_torch() -> None:
    """So the test above can fail."""
    assert brings("bench.measure.worker", "torch")


def test_plots_need_no_operator() -> None:
    assert not brings("plots.__main__", "kernels")
