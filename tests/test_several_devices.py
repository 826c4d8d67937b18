"""`--bench-device all`, with two devices made of this machine's CPU: both workers are real."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.store.parquet import read_frame

pytestmark = pytest.mark.deep

ROOT = Path(__file__).parents[1]

PRETEND = """\
import dataclasses, sys, pytest
from bench.runner import run
from bench.device.detect import detect

def pretended(wanted):
    assert wanted == "all", wanted
    cpu = dataclasses.replace(detect("cpu"), cache_byte=1 << 20)
    return [dataclasses.replace(cpu, index=i, id=f"id{i}") for i in range(2)]

run.chosen = pretended
sys.exit(pytest.main(sys.argv[1:]))
"""
SWEEP = """\
title: Small things
source: {document: none, range: ours}
operator: gemm
implementations: onednn
cases:
  - {m=n=k: [8, 33], dtype: [float32, float64]}
"""


def test_each_device_has_its_own_rows_and_file(tmp_path: Path) -> None:
    sweep = tmp_path / "small.yaml"
    sweep.write_text(SWEEP)
    words = [
        str(ROOT / "bench"),
        "-p",
        "no:cacheprovider",
        "--benchmark",
        "--bench-device",
        "all",
        "-k",
        "small",
    ]
    words += ["--bench-sweep", str(sweep), "--bench-results", str(tmp_path / "r"), "--bench-budget", "inf"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-c", PRETEND, *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "compiling and checking on 2 devices at once" in done.stdout and "8 passed" in done.stdout
    assert "cuda:0/" in done.stdout and "cuda:1/" in done.stdout
    paths = sorted((tmp_path / "r").rglob("*.parquet"))
    assert [path.stem[-5:] for path in paths] == ["-gpu0", "-gpu1"]
    frames = [read_frame([path]) for path in paths]
    assert [set(frame["device_id"]) for frame in frames] == [{"id0"}, {"id1"}]
    assert all(len(frame) == 4 and set(frame["status"]) == {"ok"} for frame in frames)
    # one after the other: the second device is first timed when the first has been timed last
    assert frames[0]["utc"].max() < frames[1]["utc"].min()
    assert (frames[0]["check_s"] > 0).all()
