"""The emulator of Gluon kernels: right ones pass in every order, and each planted fault is found."""

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.drawing import drawn, is_deep

pytest.importorskip("triton", minversion="3.7")
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from tests.kernels import gluon_examples as examples
from tests.kernels.gluon_emulator import Emulated, emulate
from tests.kernels.gluon_machine import Fault
from tests.kernels.gluon_ptx import out_of_step
from tests.kernels.gluon_walk import walk

STAGES = 2


def described(tensor: torch.Tensor, block: list[int], half: list[int] | None) -> TensorDescriptor:
    layout = gl.NVMMASharedLayout.get_default_for(block, gl.float16, cga_layout=[half] if half else None)
    return TensorDescriptor.from_tensor(tensor, block, layout)


Halves = tuple[list[int] | None, list[int] | None]
ALONE: Halves = (None, None)
PAIR: Halves = ([1, 0], [1, 0])
"""Of two blocks each has half of A's rows and half of B's, for one product of both."""
CLUSTER: Halves = ([1, 0], [0, 0])
"""Of two blocks each has half of A's rows and all of B's."""


def product(
    kernel: Any,
    seed: int,
    *,
    m: int = 200,
    n: int = 40,
    k: int = 136,
    halves: Halves = ALONE,
    programs: int = 1,
) -> Emulated:
    """D in tiles of 128 x 32 a block, 64 of K a step; AssertionError (a Fault among them) if it is wrong."""
    chance = torch.Generator().manual_seed(seed)
    a, b = (torch.rand(size, k, generator=chance).sub(0.5).half() for size in (m, n))
    d = torch.full((m, -(-n // 8) * 8), math.nan, dtype=torch.float16)
    blocks, wide = (1 if halves is ALONE else 2), (2 if halves is PAIR else 1)
    given = {
        "a": described(a, [128 * blocks, 64], halves[0]),
        "b": described(b, [32 * wide, 64], halves[1]),
        "d": described(d[:, :n], [128 * blocks, 32 * wide], halves[0]),
        "m": m,
        "n": n,
        "k": k,
        "STAGES": STAGES,
        "num_ctas": blocks,
    }
    if "PAIRED" in kernel.arg_names:
        given["PAIRED"] = halves is PAIR
    done = emulate(kernel, programs, given, seed)
    torch.testing.assert_close(d[:, :n], (a.double() @ b.double().T).half(), rtol=2e-3, atol=2e-3)
    assert bool(d[:, n:].isnan().all())
    tiles_m, tiles_n = -(-m // (128 * blocks)), -(-n // (32 * wide))
    assert done.traffic.loaded == 2 * k * (tiles_n * m + tiles_m * n * (2 if halves is CLUSTER else 1))
    assert done.traffic.stored == 2 * m * n
    return done


RIGHT: dict[str, dict[str, Any]] = {
    "on_hopper": {},
    "on_blackwell": {},
    "on_hopper in clusters": {"halves": CLUSTER, "m": 300, "n": 40},
    "on_blackwell in pairs": {"halves": PAIR, "m": 300, "n": 88},
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_passes_in_every_order(name: str, seed: int) -> None:
    kernel = getattr(examples, name.split()[0])
    for order in range(200 if is_deep() else 4):
        product(kernel, seed + order, **RIGHT[name])
    done = product(kernel, seed, **(RIGHT[name] | {"m": 100}))
    assert walk(done.launches[0]).states > 50


@pytest.mark.parametrize("programs", drawn([2, 3, 4, 5], 1, "programs of an example"))
def test_programs_share_tiles(programs: int, seed: int) -> None:
    product(examples.on_hopper, seed, programs=programs)


def test_the_walk_leaves_out_no_fault_that_the_whole_walk_finds(seed: int) -> None:
    """On the smallest product that reuses a buffer; of the faults both find the same, and in fewer states."""
    done = product(examples.on_hopper, seed, m=64, n=32, k=192)
    short, whole = walk(done.launches[0]), walk(done.launches[0], whole=True)
    assert short.states < whole.states / 5


FAULTS: dict[str, tuple[str, str, str]] = {
    "a wait left out": ("bring", "mbarrier.wait(empty.index(stage), step // STAGES & 1 ^ 1)", "pass"),
    "another wait left out": ("on_hopper", "mbarrier.wait(full.index(stage), step // STAGES & 1)", "pass"),
    "the wrong phase": ("bring", "step // STAGES & 1 ^ 1", "step // STAGES & 1"),
    "a phase that turns every step": ("on_hopper", "step // STAGES & 1)", "step & 1)"),
    "a release before the product is waited for": (
        "on_hopper",
        "total = warpgroup_mma_wait(0, deps=(total,))\n            mbarrier.arrive(empty.index(stage))",
        "mbarrier.arrive(empty.index(stage))\n            total = warpgroup_mma_wait(0, deps=(total,))",
    ),
    "a release while one product may be under way": (
        "on_hopper",
        "warpgroup_mma_wait(0",
        "warpgroup_mma_wait(1",
    ),
    "sums used before they are waited for": (
        "on_hopper",
        "total = warpgroup_mma_wait(0, deps=(total,))",
        "pass",
    ),
    "no fence": ("on_hopper", "fence_async_shared()", "pass"),
    "a fence too early": (
        "on_hopper",
        "staging.store(total.to(d.dtype))\n        fence_async_shared()",
        "fence_async_shared()\n        staging.store(total.to(d.dtype))",
    ),
    "too few bytes expected": ("bring", "a.nbytes_per_cta + b.nbytes_per_cta", "a.nbytes_per_cta"),
    "too many bytes expected": ("bring", "a.nbytes_per_cta +", "2 * a.nbytes_per_cta +"),
    "an arrival too few": ("on_hopper", "init(empty.index(i), count=1)", "init(empty.index(i), count=2)"),
    "an arrival too many": (
        "on_hopper",
        "mbarrier.arrive(empty.index(stage))",
        "mbarrier.arrive(empty.index(stage), count=2)",
    ),
    "a barrier not initialised": ("on_hopper", "mbarrier.init(full.index(i), count=1)", "pass"),
    "coordinates swapped": ("bring", "[at_m, at_k]", "[at_k, at_m]"),
    "a store's buffer reused": ("on_hopper", "tma.store_wait(0)\n        staging", "staging"),
    "an end before the store's": ("on_hopper", "staging)\n    tma.store_wait(0)", "staging)"),
    "the wrong stage": (
        "bring",
        "full.index(stage), right.index(stage)",
        "full.index(stage), right.index(0)",
    ),
    "a barrier that others arrive at": ("bring", "full.index(stage), left", "full.index(0), left"),
    "sums read before the commit": ("on_blackwell", "mbarrier.wait(done, turn & 1)", "pass"),
    "sums freed before they are read": (
        "on_blackwell",
        "total = sums.load(registers)\n        mbarrier.arrive(free)",
        "mbarrier.arrive(free)\n        total = sums.load(registers)",
    ),
    "sums overwritten": (
        "on_blackwell",
        "mbarrier.wait(free, turn & 1 ^ 1)\n        for i",
        "pass\n        for i",
    ),
    "no commit": ("on_blackwell", "tcgen05_commit(done)", "pass"),
    "a commit before the last product": (
        "on_blackwell",
        "        for i in range(steps):",
        "        tcgen05_commit(done)\n        for i in range(steps):",
    ),
    "buffers freed by their issue": (
        "on_blackwell",
        "use_acc=i > 0, mbarriers=[empty.index(stage)])",
        "use_acc=i > 0, mbarriers=[full.index(stage)])\n            mbarrier.arrive(empty.index(stage))",
    ),
    "old sums added": ("on_blackwell", "use_acc=i > 0", "use_acc=True"),
    "a buffer of the other block's overwritten": (
        "on_hopper in clusters",
        "full.index(stage), right.index(stage))",
        "full.index(stage), right.index(stage), multicast=True)",
    ),
    "the other block's sums overwritten": (
        "on_blackwell in pairs",
        "mbarrier.wait(free, turn & 1 ^ 1)\n        for at_k",
        "pass\n        for at_k",
    ),
    "sums freed in the first block only": (
        "on_blackwell in pairs",
        "        if PAIRED:\n            # The",
        "        if False:\n            # The",
    ),
    "barriers used before all blocks have them": (
        "on_blackwell in pairs",
        "mbarrier.sync_cluster_init()",
        "pass",
    ),
    "a barrier of each block where both share one": (
        "on_blackwell in pairs",
        "batch=STAGES, two_ctas=PAIRED",
        "batch=STAGES, two_ctas=False",
    ),
    "sums behind a shared barrier": (
        "on_blackwell in pairs",
        "free = mbarrier.allocate_mbarrier()",
        "free = mbarrier.allocate_mbarrier(two_ctas=PAIRED)",
    ),
}
"""What is wrong, and in which example: text of gluon_examples.py and what stands in its place."""


@pytest.fixture
def broken(tmp_path: Path) -> Callable[[str, str], Any]:
    """The examples with a piece of their text replaced, wherever it stands."""

    def load(old: str, new: str) -> Any:
        text = Path(examples.__file__).read_text()
        assert old in text
        path = tmp_path / "gluon_broken.py"
        path.write_text(text.replace(old, new))
        spec = importlib.util.spec_from_file_location("gluon_broken", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.mark.parametrize("fault", drawn(list(FAULTS), 6, "planted faults"))
def test_a_planted_fault_is_found(fault: str, broken: Callable[[str, str], Any], seed: int) -> None:
    where, old, new = FAULTS[fault]
    where = "on_hopper" if where == "bring" else where
    kernel = getattr(broken(old, new), where.split()[0])
    for order in range(3):
        try:
            done = product(kernel, seed + order, **RIGHT[where])
        except AssertionError:
            continue  # found by this order alone
        for whole in (False, True) if not RIGHT[where] else (False,):
            with pytest.raises(Fault):
                walk(done.launches[0], whole=whole)


def test_an_arrival_before_all_warps_are_there_is_found_in_compiled_code() -> None:
    def found(*lines: str) -> int:
        return len(out_of_step(SimpleNamespace(ptx="\n".join(lines))))  # type: ignore[arg-type]

    waited, together = "wgmma.wait_group.sync.aligned 0;", "bar.sync 0, 128;"
    arrival = "@%p1 mbarrier.arrive.shared::cta.b64 _, [%r1];"
    assert not found(waited, together, arrival)
    assert found(waited, arrival, together) == 1
    store = "st.shared.v4.b32 [%r1], {%r2, %r3, %r4, %r5};"
    copy = "@%p1 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1, %r2}], [%r3];"
    assert found(store, "fence.proxy.async.shared::cta;", copy) == 1
