"""The model of attention in one pass: exact where its terms are known, and bound by what it must be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.device.datasheet import find_datasheet
from bench.judge.frame import load
from bench.judge.score import scorecard, scores
from bench.model import attention
from bench.model.attention import PRIOR, TAIL, AttentionLaunches, Kernel, PredictedAttention, Softmax, predict
from bench.model.tile_wave import Machine
from tests.drawing import drawn

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
SMS = 100
MACHINE = Machine(
    **{"sm_count": SMS, "cache_byte": 50_000_000, "flop_per_s": 8e14, "byte_per_s": 3e12, "launch_s": 2e-6},
    **{"cached_byte_per_s": 6e12, "sm_byte_per_s": 4.5e10, "step_s": 1e-8, "tile_s": 1e-6, "split_s": 2e-6},
    tail=0.3,
)
"""About an H100."""
SOFTMAX = Softmax(clock_hz=1.8e9, special_per_clock=16)
ONLY_PRODUCTS = Kernel(rate=1.0, instructions=0.0, start_s=0.0, tile_s=0.0, beside=1.0)


def launches(beside: float = 0.0, **changes: Any) -> AttentionLaunches:
    """A prompt of 4096 tokens, but for the changes; a sequence of values makes as many launches."""
    sizes: dict[str, Any] = {
        "batch": 4,
        "heads": 32,
        "kv_heads": 8,
        "queries": 4096,
        "width": 128,
        "causal": True,
    }
    sizes |= {"keys": changes.get("queries", 4096)} | changes
    arrays = dict(zip(sizes, np.broadcast_arrays(*map(np.atleast_1d, sizes.values())), strict=True))
    causal = arrays.pop("causal").astype(bool)
    numbers = {name: array.astype(float) for name, array in arrays.items()}
    q, k = (
        2.0 * numbers["batch"] * numbers[heads] * numbers[length] * numbers["width"]
        for heads, length in (("heads", "queries"), ("kv_heads", "keys"))
    )
    byte = 2.0 * q + 2.0 * k
    more = np.full_like(byte, beside)
    return AttentionLaunches(**numbers, causal=causal, byte=byte, beside=more, working_set=byte + more)


def answer(of: AttentionLaunches, kernel: Kernel = PRIOR, machine: Machine = MACHINE) -> PredictedAttention:
    return predict(machine, SOFTMAX, kernel, of)


def test_products_alone_take_their_flop_over_the_peak_and_half_a_tile() -> None:
    free = replace(
        MACHINE, launch_s=0.0, byte_per_s=1e30, cached_byte_per_s=1e30, sm_byte_per_s=1e30, step_s=0.0
    )
    # The machine of a softmax that costs nothing.
    softmax = Softmax(clock_hz=1e30, special_per_clock=16)
    of = launches(causal=False, batch=[1, 25, 400])
    flop = 4.0 * of.batch * of.heads * of.queries * of.keys * of.width
    tile_s = 4.0 * 128 * 4096 * 128 / (free.flop_per_s / SMS)
    found = predict(free, softmax, ONLY_PRODUCTS, of).seconds
    assert found == pytest.approx(flop / free.flop_per_s + TAIL * tile_s, rel=1e-9)
    # Under a causal mask a tile of 128 queries sees 128 keys more than the one before it.
    causal = predict(free, softmax, ONLY_PRODUCTS, launches(batch=[1, 25, 400])).seconds
    seen = sum(range(128, 4097, 128)) / (4096 * 32)
    assert causal == pytest.approx(seen * flop / free.flop_per_s + TAIL * tile_s, rel=1e-9)


@pytest.mark.parametrize("name", ["batch", "heads", "queries", "keys", "width"])
def test_more_work_takes_no_less_time(name: str) -> None:
    steps = 8 * np.arange(1, 500) if name != "queries" else 64 * np.arange(1, 200)
    decoding = {"queries": 1, "causal": False} if name == "keys" else {}
    for kernel in (PRIOR, replace(PRIOR, packs=True)):
        sizes: dict[str, Any] = decoding | {name: steps}
        seconds = answer(launches(**sizes), kernel).seconds
        # Splitting the keys over the SMs leaves a rest that a longer row may use better.
        slack = 0.9 if name == "keys" else 1.0 - 1e-12
        assert (seconds[1:] >= slack * seconds[:-1]).all() and seconds[-1] > seconds[0]


@pytest.mark.parametrize(
    ("bound_by", "changes"),
    [
        ("launch", {"batch": 1, "queries": 64}),
        ("compute", {"width": 256}),
        ("special functions", {"width": 64}),
        ("memory", {"queries": 1, "keys": 65536, "causal": False}),
        ("compute", {"batch": 1, "heads": 8, "queries": 8192, "causal": False}),
        ("wave tail", {"batch": 1, "heads": 8, "queries": 128, "keys": 65536, "causal": False}),
    ],
)
def test_what_bounds_a_launch(bound_by: str, changes: dict[str, Any]) -> None:
    assert answer(launches(**changes)).bound_by == [bound_by]


@pytest.mark.parametrize("packs", [False, True])
def test_a_fit_finds_the_kernel_again(packs: bool, chance: np.random.Generator) -> None:
    kernel = Kernel(rate=0.8, instructions=8.0, start_s=8e-6, tile_s=4e-6, beside=1.5, packs=packs)

    def some(count: int) -> AttentionLaunches:
        powers = {"batch": (0, 6), "queries": (4, 13), "heads": (3, 6), "kv_heads": (0, 3)}
        sizes = {name: 2 ** chance.integers(*ends, count) for name, ends in powers.items()}
        return launches(width=chance.choice([64, 128, 256], count), beside=1e6, **sizes)

    seen, others = some(32), some(500)
    found = attention.fit(MACHINE, SOFTMAX, seen, answer(seen, kernel).seconds)
    wrong = answer(others, found).seconds / answer(others, kernel).seconds - 1.0
    assert found.packs is packs and np.abs(wrong).mean() < 0.04


DEVICES = sorted(folder.name for folder in (REFERENCE / "engines").iterdir() if folder.is_dir())


@pytest.mark.parametrize("device", drawn(DEVICES, 3, "devices of public attention"))
def test_each_level_is_nearer_on_public_attention(device: str) -> None:
    """On rows that fitted nothing. Of one query, a sample has too few rows for a fit to beat the priors."""
    (path,) = (REFERENCE / "engines" / device).glob("*-attention-*")
    (run,) = load([path], find_datasheet, calibrate_by=[REFERENCE / "public" / device])
    for some, least in ((run.frame["q_length"] > 1, 100), (run.frame["q_length"] > 0, 220)):
        found = {score.level: score for score in scores(scorecard(run.frame[some]))}
        l0, l1, priors, l2 = (found[level].mape for level in ("L0", "L1", "L2-priors", "L2"))
        assert l0 > l1 > priors and l2 < 17 and found["L2"].n > least
        assert least > 200 or l2 < priors
    assert 0 < run.frame["calibrating"].sum() < 0.3 * len(run.rows)
