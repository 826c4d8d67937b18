"""`python -m studies prediction`: what is drawn, and that what calibrates is never scored."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench.device.datasheet import find_datasheet
from bench.model import tile_wave
from studies import prediction
from studies.prediction import drawn, prediction_lines, public_layers
from tests.bench.machines import bfloat16
from tests.bench.public_tables import package, put, table
from tests.bench.test_calibration import USUAL

AXES = (
    [32, 64, 128, 512, 1024, 2048, 4096, 8192, 16384],
    [1, 2, 16, 64, 256, 4096, 8192],
    [32, 256, 1024, 4096, 8192, 16384],
)
SIZES = list(itertools.product(*AXES))


def test_a_draw_begins_with_the_designated_shapes_and_is_its_number_s_own() -> None:
    one, other = drawn(SIZES, 100, 1), drawn(SIZES, 100, 2)
    assert len(set(one)) == len(set(other)) == 100
    assert drawn(SIZES, 100, 1) == one and drawn(SIZES, 40, 1) == one[:40]
    same = [a for a, b in zip(one, other, strict=True) if a == b]
    assert [SIZES[i] for i in same[:3]] == [(4096, 4096, 4096), (8192, 8192, 8192), (16384, 4096, 8192)]
    assert len(set(one) & set(other)) < 70
    assert len(drawn(SIZES, 10**6, 1)) == len(SIZES)


@pytest.mark.deep
def test_what_calibrates_is_never_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times slower wherever no draw calibrates: every level that is calibrated is off by two thirds."""
    monkeypatch.setattr(prediction, "COUNTS", (64, 128))
    monkeypatch.setattr(prediction, "public_layers", lambda say: itertools.islice(public_layers(say), 1))
    folder = package(tmp_path / "site")
    monkeypatch.syspath_prepend(folder.parent)
    sheet = find_datasheet("NVIDIA H200")
    assert sheet
    seconds = tile_wave.predict(USUAL, bfloat16(np.array(SIZES))).seconds
    calibrating = drawn(SIZES, 128, 0)
    slower = np.full(len(SIZES), 3.0)
    slower[calibrating] = 1.0
    frame = pd.DataFrame(SIZES, columns=["n", "m", "k"]).assign(latency=1e3 * slower * seconds)
    put(folder, "h200_sxm", table(frame, "NVIDIA H200"))
    few, _, *lines = (line for line in prediction_lines(1, lambda _: None) if line)
    assert few.startswith("vLLM bfloat16, 64 shapes, 1 draws: mean |predicted / measured - 1| in percent")
    head = next(line for line in [_, *lines] if line.split()[:1] == ["device"])
    names = re.split(r"\s{2,}", head.strip())
    of_device = next(line for line in lines if line.strip().startswith("nvidia-h200"))
    values = dict(zip(names, re.split(r"\s{2,}", of_device.strip()), strict=True))
    for level in ("L2", "L3"):
        assert float(values[level].split()[0]) == pytest.approx(200 / 3, abs=4.0)
    assert float(values["90 % interval of L3 holds"].split()[0]) < 5.0
    assert float(values["boosting alone"].split()[0]) > 40.0
