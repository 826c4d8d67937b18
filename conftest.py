"""The command line of `pytest bench/ --benchmark`, and a guard that `import kernels` finds ours.

`pytest-benchmark compare` loads this file outside a pytest run too, so importing it does nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from bench.runner.run import Run

ROOT = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --benchmark beside pytest-benchmark's own options, and ours under their own prefix."""
    parser.getgroup("benchmark").addoption(
        "--benchmark",
        action="store_true",
        dest="bench_run",
        help="Measure every case of sweeps/. Without it, bench/ only checks that results are right.",
    )
    group = parser.getgroup("roofbench")
    group.addoption(
        "--bench-sweep",
        metavar="NAME",
        action="append",
        default=[],
        help="Only this sweep (gemm/square, square), folder of sweeps (gemm) or YAML file; repeatable.",
    )
    group.addoption(
        "--bench-device",
        metavar="DEVICE",
        default="auto",
        help="cpu, cuda, cuda:N or all (GPUs); auto (default) is the first GPU, or the CPU if there is none.",
    )
    group.addoption(
        "--bench-budget",
        metavar="SECONDS",
        help="Wall time of the run (on each device, if several), or inf; default 120 on a CPU, 600 on a GPU.",
    )
    group.addoption(
        "--bench-visits",
        metavar="N",
        default="1",
        help="Visits of each case, spread over the run; 3 for numbers to decide by. Default 1: a quick look.",
    )
    group.addoption(
        "--bench-regime",
        choices=["sustained", "boost"],
        default="sustained",
        help="sustained: settled under load (default); boost: short bursts, each after a rest.",
    )
    group.addoption(
        "--bench-results", metavar="DIR", help="Where to write results; default results/ of the checkout."
    )
    group.addoption(
        "--bench-concurrent",
        action="store_true",
        help="Time all GPUs at the same time: how they do under each other's load; never compared with runs "
        "made alone. Nothing is pinned to processors. Default: one after the other.",
    )
    group.addoption(
        "--bench-all-examples",
        action="store_true",
        help="Without --benchmark: check every implementation at all of its examples. Default: at a few that "
        "stand for all.",
    )
    group.addoption(
        "--bench-shard",
        metavar="I/N",
        help="Only part I of N of the cases, for runs that share a suite; ceilings are in each part.",
    )
    group.addoption(
        "--bench-tag",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="Say something of this run in its rows (rack=b12, cooling=liquid); repeatable.",
    )
    group.addoption(
        "--bench-anonymous",
        action="store_true",
        help="Write hashes in place of the machine's name and the GPU's PCI address, UUID and serial number.",
    )
    group.addoption(
        "--bench-resume",
        action="store_true",
        help="Go on with the run that was interrupted last, of this shard: only what is missing is measured.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse what cannot work, read the sweeps, and set pytest-benchmark up for device times.

    Runs before pytest-benchmark's own pytest_configure, which reads these options once.
    """
    from bench.environment.dependencies import missing, sentence

    if lacking := sentence(missing()):
        _refuse(lacking)
    import bench
    import kernels
    import plots

    for package in (bench, kernels, plots):
        found, ours = Path(str(package.__file__)).parent, ROOT / package.__name__
        if found != ours:
            _refuse(f"`import {package.__name__}` finds {found}, not {ours} of this checkout")
    from bench.runner.run import Refusal, Run

    option = config.option
    if option.bench_run:
        if not config.pluginmanager.hasplugin("benchmark"):
            _refuse("--benchmark needs the plugin pytest-benchmark, which -p no:benchmark excludes")
        if getattr(option, "numprocesses", None) or os.environ.get("PYTEST_XDIST_WORKER"):
            _refuse("--benchmark times one case after the other: leave out -n (pytest-xdist)")
    try:
        run = config.stash[Run.KEY] = Run(option, kernels.problem, kernels.names)
    except Refusal as refusal:
        _refuse(str(refusal))
    if config.pluginmanager.hasplugin("benchmark"):
        _configure_pytest_benchmark(option, run.device.slug)


def _refuse(sentence: str) -> NoReturn:
    """One sentence, exit code 2, no traceback."""
    pytest.exit(sentence, returncode=2)


def _configure_pytest_benchmark(option: Any, slug: str) -> None:
    asked = ["bench_run", "benchmark_only", "benchmark_enable", "benchmark_json", "benchmark_save"]
    asked += ["benchmark_autosave", "benchmark_compare"]
    if not any(getattr(option, name, None) for name in asked):
        option.benchmark_disable = True
    if option.benchmark_storage == "file://./.benchmarks":
        # Its own folders do not tell devices apart, and would appear wherever the command is typed.
        option.benchmark_storage = f"file://{ROOT}/.benchmarks/{slug}"
    if option.benchmark_columns is None:
        option.benchmark_columns = ["median", "iqr", "min", "max", "rounds", "iterations"]


def _run(config: pytest.Config) -> Run | None:
    from bench.runner.run import Run

    return config.stash.get(Run.KEY, None)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of bench/, keep what this invocation is for: cases under --benchmark, else examples."""
    run = _run(config)
    if run is None:
        return
    by_test: dict[str, list[Any]] = {"test_measure": [], "test_correct": []}
    others: list[Any] = []
    for item in items:
        by_test.get(getattr(item, "originalname", ""), others).append(item)
    cases, examples = by_test["test_measure"], by_test["test_correct"]
    if other := examples if run.timing else cases:
        config.hook.pytest_deselected(items=other)
    if run.timing:
        order = run.order([case.callspec.params["case"] for case in cases])
        if left_out := sorted(set(range(len(cases))) - set(order)):
            # Those that cannot run here get rows; thousands of skipped tests would cost a small run its time.
            config.hook.pytest_deselected(items=[cases[index] for index in left_out])
        items[:] = [*others, *(cases[index] for index in order)]
    else:
        if not config.option.bench_all_examples:
            few = set(run.few([item.callspec.params["example"] for item in examples]))
            config.hook.pytest_deselected(items=[item for i, item in enumerate(examples) if i not in few])
            run.left_out_examples = len(examples) - len(few)
            examples = [item for i, item in enumerate(examples) if i in few]
        items[:] = [*others, *examples]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Tell the run what is left after -k, and greet."""
    run = _run(session.config)
    if run is not None and run.unstarted:
        _refuse(run.unstarted)
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if run is not None and run.left_out_examples and reporter is not None:
        reporter.write_line(
            f"{run.left_out_examples:,} further examples are left out; --bench-all-examples checks them too"
        )
    if run is None or not run.timing or session.config.option.collectonly:
        return
    # A -k that pytest cannot read leaves all items here; it says so itself, later.
    given = (item.callspec.params for item in session.items if hasattr(item, "callspec"))
    run.plan(params["case"] for params in given if "case" in params)
    from bench.runner.run import Refusal

    try:
        opening = run.opening()
    except Refusal as refusal:
        _refuse(str(refusal))
    if reporter is not None:
        for line in opening:
            reporter.write_line(line)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Measure, before the tests show case by case what was measured: visits are spread over the whole run."""
    run = _run(session.config)
    option = session.config.option
    if run is None or not run.timing or option.collectonly or session.testsfailed:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")

    def say(line: str) -> None:
        if reporter is not None:
            reporter.write(line + "\n", flush=True)

    from bench.store.schema import StoreError

    try:
        run.measure(say, option.maxfail)
        run.collect()
    except StoreError as error:
        _refuse(str(error))


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """No dots: each visit has printed its line."""
    if "::test_measure[" in report.nodeid and report.when == "call":
        return report.outcome, "", ""
    return None


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Close the run."""
    run = _run(session.config)
    if run is not None:
        run.finish(interrupted=exitstatus == pytest.ExitCode.INTERRUPTED)
        if run.unwritten:
            session.exitstatus = 2


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Our table and account, last."""
    run = _run(config)
    if run is not None and run.timing and not config.option.collectonly:
        terminalreporter.section("roofbench")
        for line in run.closing():
            terminalreporter.write_line(line)


# ---- what pytest-benchmark stores about the machine

VOLATILE = ("hz_actual", "hz_actual_friendly", "hz_advertised", "hz_advertised_friendly")
"""Differ from run to run on one machine, which pytest-benchmark would warn of every time."""


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """Say which device was timed; leave out what changes on its own."""
    for name in VOLATILE:
        machine_info.get("cpu", {}).pop(name, None)
    run = _run(config)
    if run is not None:
        machine_info["device"] = {"slug": run.device.slug, "name": run.device.name, "id": run.device.id}


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_compare_machine_info(
    config: pytest.Config, machine_info: dict[str, Any], compared_benchmark: dict[str, Any]
) -> None:
    """Refuse to compare with another device's times."""
    saved = compared_benchmark["machine_info"].get("device", {}).get("slug")
    here = machine_info.get("device", {}).get("slug")
    if saved != here:
        _refuse(f"--benchmark-compare: the saved run is of {saved}, this one of {here}")
