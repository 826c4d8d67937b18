"""Our attention kernels, run by the repaired interpreter under the sanitizer."""

import itertools
import math
from collections.abc import Iterator
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, get_args

import pytest
import torch

from bench.launching import timing, tuning
from bench.worker.check import outputs_of
from kernels.attention import backward, forward
from kernels.attention.backward import Tiles
from kernels.attention.forward import Tile
from kernels.attention.operator import OPERATOR
from kernels.attention.problem import Attention, Direction
from tests.drawing import covering, is_deep
from tests.kernels.devices import new_process
from tests.kernels.interpreted import check, check_again, check_far_end, ran
from tests.kernels.interpreter import repaired
from tests.kernels.problems import inputs_of, usual
from tests.kernels.sanitizer import Watch, at_the_end, watched
from tests.kernels.tensors import uniform

UNIT_ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
DTYPES = tuple(UNIT_ROUNDOFF)
TILES = (Tile(16, 16, 4, 2), Tile(32, 16, 4, 2), Tile(16, 32, 4, 2))
"""Smaller than those to be tuned, so that small problems have several of them."""


attention = partial(usual, "attention", batch=1, heads=1, kv_heads=1, q_length=37, dtype="float16")


def cases() -> Iterator[tuple[Attention, Tile]]:
    """Lengths of 1, primes, on, one short of and one past tiles; groups; widths with and without padding."""
    heads = itertools.cycle([(1, 1, 1), (2, 2, 1), (1, 4, 2), (2, 3, 3)])
    turn = itertools.cycle(itertools.product((16, 24, 32, 5), DTYPES, TILES))
    lengths = [(1, 1), (1, 47), (47, 1), (2, 16), (15, 33), (16, 31), (17, 32), (32, 48), (37, 53), (65, 3)]
    for q_length, kv_length in lengths:
        for causal in {False, q_length == kv_length}:
            batch, count, kv_heads = next(heads)
            width, dtype, tile = next(turn)
            yield attention(
                batch=batch, heads=count, kv_heads=kv_heads, q_length=q_length, kv_length=kv_length,
                head_width=width, dtype=dtype, causal=causal,
            ), tile  # fmt: skip
    for length, tile in itertools.product((2, 16, 31, 32, 33, 61), TILES):
        batch, count, kv_heads = next(heads)
        width, dtype, _ = next(turn)
        yield attention(
            batch=batch, heads=count, kv_heads=kv_heads, q_length=length, kv_length=length,
            head_width=width, dtype=dtype, causal=True,
        ), tile  # fmt: skip


def few(direction: str) -> list[tuple[Attention, Tile]]:
    """Every tile, type and width, causal, grouped and long or not, between them; all in a deep run."""
    return covering(
        [(problem.model_copy(update={"direction": direction}), tile) for problem, tile in cases()],
        f"interpreted attention {direction}",
        lambda case: (case[0].causal, case[0].group > 1, case[0].q_length > 32),
        lambda case: case[0].dtype,
        lambda case: case[0].head_width,
        lambda case: (case[0].causal, case[1]),
    )


def inputs(problem: Attention, seed: int, sharpness: float = 8.0) -> tuple[torch.Tensor, ...]:
    """q, k and v; scores spread by several units, so that the largest one moves and probabilities differ."""
    make = uniform(problem, seed)
    queries = problem.batch, problem.heads, problem.q_length, problem.head_width
    keys = problem.batch, problem.kv_heads, problem.kv_length, problem.head_width
    return make(*queries) * sharpness, make(*keys), make(*keys)


def scores(problem: Attention, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """[batch, heads, q_length, kv_length] in float64; -inf where a query does not see a key."""
    of_group = k.double().repeat_interleave(problem.group, 1)
    product = q.double() @ of_group.mT / math.sqrt(problem.head_width)
    if problem.causal:
        product = product.masked_fill(torch.ones_like(product, dtype=torch.bool).triu(1), -math.inf)
    return product


def expected(problem: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """o in float64."""
    return scores(problem, q, k).softmax(-1) @ v.double().repeat_interleave(problem.group, 1)


class Forward(NamedTuple):
    o: torch.Tensor
    lse: torch.Tensor
    watch: Watch


def attended(problem: Attention, tensors: tuple[torch.Tensor, ...], tile: Tile) -> Forward:
    """What the forward kernel writes into results of NaN, and what it touches."""
    lse = torch.full(tensors[0].shape[:-1], math.nan)
    (o,), watch = ran(forward.launch(problem, *tensors, lse=lse, tile=tile))
    return Forward(o, lse, watch)


def keys_walked(problem: Attention, tile: int, *, heads: int, q_length: int) -> int:
    """Keys that all tiles of `tile` queries read, by the formula of forward.py."""
    starts = range(0, q_length, tile)
    last = [min(start + tile, problem.kv_length) if problem.causal else problem.kv_length for start in starts]
    return heads * sum(last)


def seen_by(problem: Attention) -> tuple[int, int]:
    """Heads of all batches and queries of each, as forward.py counts them."""
    if problem.causal:
        return problem.batch * problem.heads, problem.q_length
    return problem.batch * problem.kv_heads, problem.group * problem.q_length


@pytest.mark.parametrize(("problem", "tile"), few("forward"), ids=str)
def test_forward_is_right_in_bounds_and_writes_each_element_once(
    problem: Attention, tile: Tile, seed: int
) -> None:
    """p is rounded once, and so is o: two units of the largest value; bytes are what the docstring says."""
    tensors = inputs(problem, seed)
    o, lse, watch = attended(problem, tensors, tile)
    want = expected(problem, *tensors)
    largest = float(tensors[2].abs().max())
    assert float((o.double() - want).abs().max()) <= (2 * UNIT_ROUNDOFF[problem.dtype] + 1e-5) * largest
    sums = scores(problem, *tensors[:2]).logsumexp(-1)
    torch.testing.assert_close(lse.double(), sums, rtol=1e-5, atol=1e-5)

    heads, q_length = seen_by(problem)
    keys = keys_walked(problem, tile.m, heads=heads, q_length=q_length)
    assert watch.loads.byte == problem.q_byte + 2 * keys * problem.head_width * problem.item_byte
    assert watch.loads.distinct_byte == problem.byte_read
    assert watch.stores.within(o).byte == o.nbytes and watch.stores.within(lse).byte == lse.nbytes
    assert watch.stores.byte == o.nbytes + lse.nbytes
    assert watch.stores.repeated == 0 and watch.atomics.byte == 0


def test_without_lse_o_alone_is_written(seed: int) -> None:
    problem = attention(causal=True, heads=2)
    tensors = inputs(problem, seed)
    done = ran(forward.launch(problem, *tensors, tile=TILES[0]))
    assert done.byte[1] == problem.byte_written
    assert torch.equal(done.outputs[0], attended(problem, tensors, TILES[0]).o)


@pytest.mark.parametrize("dtype", DTYPES)
def test_scores_that_rise_fall_and_are_huge(dtype: str, seed: int) -> None:
    """The largest score comes last, first or anywhere, thousands away from the others: nothing overflows."""
    problem = attention(dtype=dtype, q_length=3, kv_length=64)
    q, k, v = inputs(problem, seed, sharpness=1.0)
    k[..., 0] = torch.linspace(-100, 100, 64)
    q[..., 0, :], q[..., 1, :], q[..., 2, :] = 0, 0, 0
    q[..., 0, 0], q[..., 1, 0], q[..., 2, 3] = 200, -200, 60000 if dtype == "float16" else 1e30
    o, lse, _ = attended(problem, (q, k, v), TILES[0])
    torch.testing.assert_close(o.double(), expected(problem, q, k, v), rtol=0, atol=8e-3)
    sums = scores(problem, q, k).logsumexp(-1)
    torch.testing.assert_close(lse.double(), sums, rtol=1e-5, atol=1e-5)


def test_a_row_of_minus_infinity_gives_zero_and_no_nan(seed: int) -> None:
    """Products that overflow: every score of query 1, the first blocks of query 2, the last of query 3."""
    problem = attention(dtype="bfloat16", q_length=5, kv_length=40)
    q, k, v = inputs(problem, seed, sharpness=1.0)
    q[..., 1:4, :], k[..., 0], k[..., 1], k[..., 2] = 0, 3e38, 0, 0
    k[..., :33, 1], k[..., 33:, 2] = 3e38, 3e38
    q[..., 1, 0], q[..., 2, 1], q[..., 3, 2] = -3e38, -3e38, -3e38
    q[..., 0, :3], q[..., 4, :3] = 0, 0
    o, lse, _ = attended(problem, (q, k, v), TILES[0])
    assert not o.isnan().any() and not lse.isnan().any()
    assert not o[..., 1, :].any() and lse.isneginf().flatten().tolist() == [False, True, False, False, False]
    finite = scores(problem, q, k)
    finite[finite < -3e38] = -math.inf
    want = finite.softmax(-1) @ v.double()
    rows = [0, 2, 3, 4]
    torch.testing.assert_close(o.double()[..., rows, :], want[..., rows, :], rtol=0, atol=8e-3)


def test_nan_and_infinity_spoil_the_rows_that_see_them_and_no_others(seed: int) -> None:
    problem = attention(q_length=40, kv_length=40, causal=True)
    q, k, v = inputs(problem, seed)
    q[..., 5, 3], q[..., 30, 0], k[..., 37, 2] = math.nan, math.inf, math.nan
    o = attended(problem, (q, k, v), TILES[0]).o
    assert torch.equal(o.isnan(), expected(problem, q, k, v).isnan())
    assert 0 < int(o.isnan().sum()) < o.numel() / 4


def test_heads_lie_beyond_32_bits(seed: int) -> None:
    """The four tiles of the last two heads, which share their keys."""
    problem = attention(batch=2**17 + 1, heads=8, kv_heads=4, q_length=32, kv_length=32, head_width=64)
    assert problem.q_byte > 2**32
    last = problem.model_copy(update={"batch": 1, "heads": 2, "kv_heads": 1})
    tile = Tile(16, 16, 4, 2)
    check_far_end(OPERATOR, problem, last, lambda x: forward.launch(problem, *x, tile=tile), seed, programs=4)


def examples() -> list[Attention]:
    """Those that are ours; of an ordinary run the cheap ones."""
    ours = (p for p in OPERATOR.examples if not p.missing("triton", "cuda", (9, 0)))
    possible = [p for p in ours if is_deep() or p.flop < 5e6]
    return covering(possible, "attention's examples", attrgetter("direction"))


@pytest.mark.parametrize("problem", examples(), ids=str)
def test_what_is_tuned_would_run(problem: Attention, seed: int) -> None:
    """The operator's own inputs, the largest and the smallest tile to be tuned, within its tolerance."""
    tensors = inputs_of(problem, seed)
    for end in (0, -1):
        if problem.direction == "forward":
            launch = forward.launch(problem, *tensors, tile=forward.candidates(problem, (9, 0))[end])
        else:
            query = backward.query_candidates(problem, (9, 0))[end]
            tiles = Tiles(query, backward.key_candidates(problem)[end])
            launch = backward.launch(problem, *tensors, tiles=tiles)
        check(OPERATOR, problem, tensors, launch)


@pytest.mark.parametrize("direction", get_args(Direction))
def test_the_tiles_that_were_quickest_are_launched_and_named(
    direction: Direction, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    """On a made-up H200 on which the last candidate of each kernel is the quickest."""
    new_process(monkeypatch)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(tuning, "TUNED", tmp_path)
    monkeypatch.setattr(timing, "quickest", lambda makers: (len(makers) - 1, 1e-3))
    problem = attention(direction=direction, q_length=70, kv_length=70, heads=2)
    tensors = inputs_of(problem, seed)
    with repaired():
        launch = OPERATOR.implementations["triton"](problem, *tensors)
    check(OPERATOR, problem, tensors, launch)
    name = {
        "forward": str(forward.TILES[16][-1]),
        "backward": f"{backward.QUERY_TILES[16][-1]}, dk dv {backward.KEY_TILES[16][-1]}",
    }
    assert launch.configuration == name[direction]


def by_autograd(
    problem: Attention, tensors: tuple[torch.Tensor, ...], do: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """dq, dk and dv in float64, by torch's derivative of `expected`."""
    exact = tuple(tensor.double().requires_grad_() for tensor in tensors)
    expected(problem, *exact).backward(do.double())
    return tuple(tensor.grad for tensor in exact if tensor.grad is not None)


def rounding(
    problem: Attention, tensors: tuple[torch.Tensor, ...], do: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """What rounding can change in each element of dq, dk and dv; their own is left out.

    p, ds and o are rounded once each, o before it is summed into delta. A float16 below 2^-14 is off by up to
    2^-25 however small it is. Float32 sums and exponentials add some 1e-5.
    """
    q, k, v = (tensor.double() for tensor in tensors)
    unit, least = UNIT_ROUNDOFF[problem.dtype] + 1e-5, 2.0**-25
    of_group = [tensor.repeat_interleave(problem.group, 1) for tensor in (k, v)]
    p = scores(problem, *tensors[:2]).softmax(-1)
    dp = do.double() @ of_group[1].mT
    parts = (do.double() * expected(problem, *tensors)).abs().sum(-1, keepdim=True)
    ds = unit * p * ((dp - (p * dp).sum(-1, keepdim=True)).abs() + parts) + least
    scale = 1 / math.sqrt(problem.head_width)

    def over_group(of_heads: torch.Tensor) -> torch.Tensor:
        return of_heads.unflatten(1, (problem.kv_heads, problem.group)).sum(2)

    dv = over_group((unit * p + least).mT @ do.double().abs())
    return scale * ds @ of_group[0].abs(), scale * over_group(ds.mT @ q.abs()), dv


@pytest.mark.parametrize(("problem", "tile"), few("backward"), ids=str)
def test_backward_is_right_in_bounds_and_writes_each_element_once(
    problem: Attention, tile: Tile, seed: int
) -> None:
    """Against float64 autograd, each element within what rounding explains; again, the same bits."""
    tensors = inputs(problem, seed)
    do = uniform(problem, seed + 1)(*tensors[0].shape)
    before = attended(problem, tensors, tile)
    tiles = Tiles(tile, TILES[(TILES.index(tile) + 1) % len(TILES)])
    launch = backward.launch(problem, *tensors, before.o, before.lse, do, tiles=tiles)
    (dq, dk, dv), watch = ran(launch)
    unit = UNIT_ROUNDOFF[problem.dtype]
    bounds = rounding(problem, tensors, do)
    for got, want, bound in zip((dq, dk, dv), by_autograd(problem, tensors, do), bounds, strict=True):
        assert ((got.double() - want).abs() <= bound + unit * want.abs() + 1e-6).all()
    check_again(launch)

    heads, q_length = seen_by(problem)
    keys = keys_walked(problem, tiles.query.m, heads=heads, q_length=q_length)
    row = problem.head_width * problem.item_byte
    loaded = 3 * problem.q_byte + problem.lse_byte + 2 * keys * row
    starts = range(0, problem.kv_length, tiles.key.n)
    firsts = [start // tiles.key.m * tiles.key.m if problem.causal else 0 for start in starts]
    queries = heads * sum(q_length - first for first in firsts)
    loaded += 2 * problem.k_byte + queries * (2 * row + 8)
    assert watch.loads.byte == loaded
    assert watch.loads.distinct_byte == problem.byte_read + problem.lse_byte
    assert watch.stores.byte == problem.byte_written + problem.lse_byte
    assert all(watch.stores.within(gradient).byte == gradient.nbytes for gradient in (dq, dk, dv))
    assert watch.stores.repeated == 0 and watch.atomics.byte == 0


def test_a_row_of_minus_infinity_has_no_part_in_the_gradients(seed: int) -> None:
    problem = attention(direction="backward", dtype="bfloat16", q_length=5, kv_length=40)
    q, k, v = inputs(problem, seed, sharpness=1.0)
    q[..., 1, :], k[..., 0], q[..., 0] = 0, 3e38, 0
    q[..., 1, 0] = -3e38
    do = uniform(problem, seed + 1)(*q.shape)
    before = attended(problem, (q, k, v), TILES[0])
    assert before.lse.isneginf().flatten().tolist() == [False, True, False, False, False]
    tiles = Tiles(TILES[0], TILES[1])
    dq, dk, dv = ran(backward.launch(problem, q, k, v, before.o, before.lse, do, tiles=tiles)).outputs
    assert not dq[..., 1, :].any()
    others = [0, 2, 3, 4]
    rest = problem.model_copy(update={"q_length": 4})
    want = by_autograd(rest, (q[..., others, :], k, v), do[..., others, :])
    torch.testing.assert_close(dv.double(), want[2], rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(dk.double(), want[1], rtol=1e-2, atol=1e-2)
    finite = slice(1, None)  # the sum of ds k is 0 in exact arithmetic where all k are 3e38
    torch.testing.assert_close(dq[..., others, finite].double(), want[0][..., finite], rtol=1e-2, atol=1e-2)


def test_gradients_lie_beyond_32_bits(seed: int) -> None:
    """The last programs of either kernel where tensors have more than 2^31 elements."""
    problem = attention(
        direction="backward", batch=2**17 + 1, heads=8, kv_heads=8, q_length=32, kv_length=32, head_width=64
    )
    last = problem.model_copy(update={"batch": 1, "heads": 1, "kv_heads": 1})
    own = inputs(last, seed)
    before = attended(last, own, TILES[0])
    do = uniform(last, seed + 1)(*own[0].shape)
    whole = []
    for tensor in (*own, before.o, before.lse, do):
        shape = problem.batch, problem.heads, *tensor.shape[2:]
        whole.append(torch.empty(shape, dtype=tensor.dtype))
        whole[-1][-1, -1] = tensor[0, 0]
    with repaired(), watched(), at_the_end(2):
        gradients = outputs_of(backward.launch(problem, *whole, tiles=Tiles(TILES[0], TILES[0])).call())
    for got, want in zip(gradients, by_autograd(last, own, do), strict=True):
        torch.testing.assert_close(got[-1, -1].double(), want[0, 0], rtol=1e-2, atol=2e-3)
