"""The parts of the Ray driver that need no Ray, which is replaced by what it takes to import the driver.

A real cluster is in studies/fleet_ray.py.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = """#!/bin/bash
if [ "$1" = -c ]; then echo 1; exit; fi
while [ "$1" != --bench-results ]; do shift; done
mkdir -p "$2/gpu" && echo "$*" > "$2/gpu/run.parquet"
echo measured
exit 3
"""


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    stand_ins: dict[str, dict[str, object]] = {
        "ray": {"remote": lambda **_: lambda function: function},
        "ray.exceptions": {"RayError": Exception},
        "ray.util": {},
        "ray.util.scheduling_strategies": {"NodeAffinitySchedulingStrategy": SimpleNamespace},
    }
    for name, contents in stand_ins.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("ray_fleet", ROOT / "fleet" / "ray_fleet.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("given", "name"), [("rack1-7", "rack1-7"), ("10.0.0.7", "host7")])
def test_a_node_is_called_as_ray_was_told_or_by_its_host(driver: Any, given: str, name: str) -> None:
    node = {"NodeName": given, "NodeManagerAddress": "10.0.0.7", "NodeManagerHostname": "host7"}
    assert driver.name_of(node) == name


def test_the_files_of_a_node_arrive_where_the_driver_runs(
    driver: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    monkeypatch.setenv("PYTHON", str(python))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-5")
    visible, status, output, files = driver.measure("n7", ["--bench-suite", "fleet"])
    assert (visible, status, output) == ("GPU-5", 3, "measured\n")
    driver.keep(tmp_path / "results", "n7 task 1 of 1", (visible, status, output, files))
    content = (tmp_path / "results" / "n7" / "gpu" / "run.parquet").read_text()
    assert content.endswith("/n7 --bench-tag node=n7 --bench-suite fleet\n")
    said = capsys.readouterr().out
    assert said == "n7 task 1 of 1: 1 result files, CUDA_VISIBLE_DEVICES=GPU-5, exit code 3\n"


def test_why_a_node_gave_no_file_is_said(driver: Any, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "".join(f"line {number}\n" for number in range(30))
    driver.keep(Path(os.devnull), "n7 task 1 of 1", ("", 2, lines, {}))
    said = capsys.readouterr().out.splitlines()
    assert said[1:] == [f"line {number}" for number in range(20, 30)]
