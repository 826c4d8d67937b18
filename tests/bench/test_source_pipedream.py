"""PipeDream's profiles: sizes follow from bytes and texts, and a time may hold more than its layer's."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import kernels
from bench.interop.import_source import imported
from bench.interop.imported_problems import with_imported
from bench.interop.source_file import described


def test_a_layer_is_a_row_where_nothing_else_runs_in_its_time(tmp_path: Path, seed: int) -> None:
    ms = [random.uniform(20.0, 30.0) for _ in range(10)]
    norm = "BatchNorm2d(128, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)"
    side, n = 28, 256  # ResNet-18's batch
    bytes_out = 4 * n * 128 * side * side
    layers = [
        ("Input", 5.0, 0.0),
        ("Conv2d(3, 64, kernel_size=(7, 7), stride=(2, 2), padding=(3, 3), bias=False)", ms[0], ms[1]),
        ("Conv2d(64, 128, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), bias=False)", ms[2], ms[3]),
        (norm, ms[4], ms[5]),
        ("Add(inplace)", 0.0, 0.0),
        ("ReLU(inplace)", ms[6], ms[7]),
        ("ReLU(inplace)", ms[8], ms[9]),
    ]
    lines = [
        f"node{number} -- {layer} -- forward_compute_time={forward}, backward_compute_time={backward}, "
        f"activation_size={bytes_out}.000, parameter_size=0.000"
        for number, (layer, forward, backward) in enumerate(layers, start=1)
    ]
    folder = tmp_path / "profiler" / "image_classification" / "profiles" / "resnet18"
    folder.mkdir(parents=True)
    (folder / "graph.txt").write_text("\n".join([*random.sample(lines, len(lines)), "\tnode1 -- node2"]))
    outcome = imported(described("pipedream"), tmp_path, tmp_path / "results", with_imported(kernels.problem))
    rows = [row for each in outcome.rows for row in each.rows]
    convolution, *others = sorted(rows, key=lambda row: row.operator != "convolution")
    # A window of 3 x 3 that moves 2 points over 56 x 56, an even size, gives 28 x 28.
    assert convolution.flop == 2 * n * side * side * 128 * 64 * 9
    assert '"h":56' in convolution.parameters
    assert convolution.median_s == pytest.approx(ms[2] * 1e-3)
    # No rows: the first layer, the ReLU that has the addition in its time, a convolution's two gradients.
    assert sorted(row.median_s for row in others) == pytest.approx(
        sorted(1e-3 * time for time in (ms[4], ms[5], ms[8], ms[9]))
    )
    assert sum(outcome.aside.values()) == 2 * len(layers) - len(rows)
