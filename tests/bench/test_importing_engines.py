"""`python -m bench import aiconfigurator --table NAME`: layers, attention, collectives of made-up tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import kernels
from bench.interop.imported_problems import with_imported
from bench.store.parquet import read_frame
from tests.bench.public_tables import imports, package, shapes

ENGINES = Path(__file__).parents[2] / "results" / "reference" / "engines"
H200, B200 = "NVIDIA H200", "NVIDIA B200"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an installed package without tables."""
    made = package(tmp_path / "site")
    monkeypatch.syspath_prepend(made.parent)
    return made


def put(
    folder: Path, place: str, rows: list[dict[str, Any]], device: str = H200, version: str = "1.2"
) -> Path:
    """The table `place`, such as comm/nccl/1.2/nccl_perf.parquet, of a system; all of it is of one device."""
    path = folder / "systems" / "data" / device.split()[1].lower() / place
    path.parent.mkdir(parents=True, exist_ok=True)
    same = {"framework": "X", "version": version, "device": device}
    pd.DataFrame([same | row for row in rows]).to_parquet(path)
    return path


def imported(table: str, results: Path) -> tuple[pd.DataFrame, str]:
    """(the rows, what the command prints, also of those that it set aside)."""
    code, told, err = imports("aiconfigurator", "--table", table, "--bench-results", results)
    assert code == 0, err
    return read_frame([results]), told + err


LAYERS = {
    "bfloat16": ("torch.nn.functional.linear", "bfloat16", "none", "graph", 6),
    "fp8": ("CutlassFP8ScaledMMLinearKernel", "float8_e4m3", "row", "graph", 6),
    "fp8_block": ("DeepGemmFp8BlockScaledMMKernel", "float8_e4m3", "block", "stream", 1),
    "nvfp4": ("FlashInferCuteDslNvFp4LinearKernel", "nvfp4", "group", "graph", 1),
}
"""Data type as the tables call it -> the kernel, and what our row says."""


def layers(sizes: pd.DataFrame) -> list[dict[str, Any]]:
    """Every size in every data type, as the table has them."""
    return [
        {"op_name": "gemm", "kernel_source": LAYERS[kind][0], "gemm_dtype": kind}
        | {"m": int(one.m), "n": int(one.n), "k": int(one.k), "latency": float(one.latency) * (1 + number)}
        for one in sizes.itertuples()
        for number, kind in enumerate(LAYERS)
    ]


def test_layers_say_how_they_are_quantised_and_how_they_were_timed(
    folder: Path, tmp_path: Path, chance: np.random.Generator
) -> None:
    table = layers(shapes(chance, 20))
    put(folder, "gemm/vllm/1.2/gemm_perf.parquet", table)
    rows, told = imported("quantized_linear", tmp_path / "out")
    assert len(rows) == len(table) and "aside" not in told.split("\n", 2)[2] and "left out" not in told
    by = {(row.implementation, row.batch, row.outputs, row.inputs): row for row in rows.itertuples()}
    for theirs in table:
        kernel, dtype, scaling, clock, slots = LAYERS[theirs["gemm_dtype"]]
        row = by[kernel, theirs["m"], theirs["n"], theirs["k"]]
        assert (row.dtype, row.scaling, row.clock, row.ring_slots) == (dtype, scaling, clock, slots)
        assert row.median_s == pytest.approx(theirs["latency"] / 1e3)
        assert row.flop == 2 * theirs["m"] * theirs["n"] * theirs["k"]
    assert rows["low_s"].isna().all() and rows["samples_s"].isna().all() and (rows["commit"] == "").all()
    (source,) = set(rows["source"])
    where = "systems/data/h200/gemm/vllm/1.2/gemm_perf.parquet"
    assert source == f"aiconfigurator-core 9.8.7, vLLM 1.2; {where}; Apache-2.0, NVIDIA"


def attention(isl: int, step: int, op: str = "context_attention", **changes: Any) -> dict[str, Any]:
    row = {"batch_size": 2, "num_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "window_size": 0}
    types = {"attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16", "beam_width": 1}
    named = {"op_name": op, "kernel_source": "vllm_flash_attn_fa3", "latency": 0.5}
    return row | types | named | {"isl": isl, "step": step} | changes


def test_attention_of_a_prompt_of_a_new_token_and_of_an_encoder(folder: Path, tmp_path: Path) -> None:
    prompts = [attention(6, 0), attention(6, 0, window_size=4)]
    put(folder, "attention/vllm/1.2/context_attention_perf.parquet", prompts)
    late = attention(1, 31, "generation_attention", kernel_source="vllm_flash_attn_fa4")
    fp8 = late | {"kv_cache_dtype": "fp8", "latency": 0.4}
    put(folder, "attention/vllm/1.2/generation_attention_perf.parquet", [late, fp8])
    encoder = attention(6, 0, "encoder_attention", kernel_source="vllm_vit_flash_attn_fa3")
    lacking = ("window_size", "step", "num_key_value_heads", "beam_width", "kv_cache_dtype")
    encoder = {name: value for name, value in encoder.items() if name not in lacking}
    put(folder, "encoder_attention/vllm/1.2/encoder_attention_perf.parquet", [encoder])
    rows, told = imported("attention", tmp_path / "out")
    assert "set aside 1: a cache in fp8, where the type of the products is not known\n" in told
    assert "set aside 1: a position sees a window of the positions before it\n" in told
    assert set(rows["operator"]) == {"attention"} and len(set(rows["run_id"])) == 1
    got = {row.implementation.removeprefix("vllm_"): row for row in rows.itertuples()}
    counted = {name: (row.q_length, row.kv_length, row.kv_heads, row.causal) for name, row in got.items()}
    # A length of keys that is that of the queries is not stored.
    assert str(counted) == str({
        "flash_attn_fa3": (6, np.nan, 4, True), "flash_attn_fa4": (1, 32.0, 4, False),
        "vit_flash_attn_fa3": (6, np.nan, 8, False),
    })  # fmt: skip
    each = 4 * 64 * 2 * 8  # FLOP of a pair, times sequences and heads
    assert [row.flop / each for row in got.values()] == [1 + 2 + 3 + 4 + 5 + 6, 32, 6 * 6]
    q, kv = 2 * 8 * 64 * 2, 2 * 2 * 4 * 64 * 2  # bytes of a position
    assert [row.byte for row in got.values()] == [6 * (2 * q + kv), 2 * q + 32 * kv, 6 * (2 * q + 2 * kv)]
    # The new keys and values are read and written to the cache; an encoder has none.
    assert [row.byte_moved - row.byte for row in got.values()] == [6 * 2 * kv, 2 * kv, 0]
    assert [row.byte_again for row in got.values()] == [6 * kv, kv, 0]
    assert [row.moved_written - row.byte_written for row in got.values()] == [6 * kv, kv, 0]


def collective(op: str, gpus: int, elements: int, **changes: Any) -> dict[str, Any]:
    named = {"op_name": op, "kernel_source": "NCCL", "nccl_dtype": "half", "latency": 0.25}
    return named | {"num_gpus": gpus, "message_size": elements} | changes


def test_collectives_of_nccl_and_of_vllm(folder: Path, tmp_path: Path) -> None:
    operations = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
    nccl = [collective(op, 4, 1024) for op in operations]
    put(folder, "comm/nccl/2.9/nccl_perf.parquet", [collective("all_reduce", 2, 8)], version="2.9")
    put(folder, "comm/nccl/2.10/nccl_perf.parquet", nccl, version="2.10")
    in_graph = collective("all_reduce", 8, 64, kernel_source="vLLM_custom_graph", allreduce_dtype="bfloat16")
    del in_graph["nccl_dtype"]
    eager = in_graph | {"kernel_source": "vLLM_custom_eager"}
    put(folder, "comm/vllm/1.2/custom_allreduce_perf.parquet", [in_graph, eager])
    rows, told = imported("collective", tmp_path / "out")
    assert "set aside 1: not in a CUDA graph, so that its input is copied first\n" in told
    assert "left out 1 files that have newer versions\n" in told
    theirs = rows[rows["implementation"] == "NCCL"]
    assert set(theirs["libraries"]) == {"NCCL 2.10"}, "of 2.9 and 2.10 the second is the newer"
    sides = {row.operation: (row.byte - row.byte_written, row.byte_written) for row in theirs.itertuples()}
    assert sides == {
        "all_reduce": (2048, 2048), "alltoall": (2048, 2048),
        "all_gather": (512, 2048), "reduce_scatter": (2048, 512),
    }  # fmt: skip
    (ours,) = rows[rows["implementation"] == "vLLM_custom_graph"].itertuples()
    assert (ours.gpus, ours.elements, ours.dtype, ours.clock) == (8, 64, "bfloat16", "graph")
    assert ours.flop == 64 * 7 // 8 and ours.median_s == pytest.approx(0.25e-3)
    code, _, err = imports("aiconfigurator", "--table", "collective", "--bench-results", tmp_path / "out")
    assert code == 2 and ": already imported as " in err and " and 1 more file; " in err


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"latency": float("nan")}, "collective: no time above zero"),
        ({"message_size": 0}, "collective: elements must be at least 1"),
        ({"nccl_dtype": "double"}, "collective: dtype cannot be 'double'"),
        ({"kernel_source": "vLLM_custom_graph"}, "not run by NCCL"),
        ({"device": "AMD MI300X"}, "no NVIDIA GPU"),
    ],
)
def test_rows_that_mean_nothing_here_are_counted(
    folder: Path, tmp_path: Path, bad: dict[str, Any], why: str
) -> None:
    good = collective("all_reduce", 2, 8)
    put(folder, "comm/nccl/2/nccl_perf.parquet", [good, good | bad, good | {"latency": 0.75}])
    rows, told = imported("collective", tmp_path / "out")
    assert f"set aside 1: {why}" in told
    assert rows["median_s"].tolist() == [pytest.approx(0.5e-3)], "of two times of a case the median counts"


# ---- the committed sample


def test_the_committed_rows_are_counted_by_their_problems() -> None:
    rows = read_frame([ENGINES])
    names = ("attention", "collective", "quantized_linear")
    problems = {name: with_imported(kernels.problem)(name) for name in names}
    assert set(rows["operator"]) == set(problems) and rows["source"].str.contains("Apache-2.0, NVIDIA").all()
    for row in rows.drop_duplicates(["operator", "parameters", "implementation"]).itertuples():
        facts = problems[row.operator](**json.loads(row.parameters)).facts(row.implementation)
        assert facts["dtype"] == row.dtype
        counts = ["flop", "byte", "byte_written", *([] if row.operator == "attention" else ["byte_moved"])]
        assert [getattr(row, name) for name in counts] == [facts[name] for name in counts]
