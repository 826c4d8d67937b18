import itertools
import random
from functools import partial

import pytest
import torch
from pydantic import ValidationError

from bench.worker.check import outputs_of
from kernels.pooling.operator import OPERATOR, tolerance
from kernels.pooling.problem import Pooling
from tests.kernels.problems import inputs_of, usual
from tests.kernels.tensors import relative_error, uniform

pooling = partial(usual, "pooling")


def geometries() -> list[dict[str, object]]:
    """Every window, stride and padding that PyTorch allows, on odd, prime and tiny images."""
    found = []
    for window, stride in itertools.product((1, 2, 3, 5, 7), (1, 2, 3)):
        for padding in range(window // 2 + 1):
            for h, w in ((7, 7), (13, 10), (1, 6)):
                given: dict[str, object] = {"window": window, "stride": stride, "padding": padding}
                given |= {"h": h, "w": w}
                try:
                    pooling(**given)
                except ValidationError:
                    continue
                found.append(given)
    rows = ((1, 1, 0), (2, 3, 1), (3, 1, 0), (3, 2, 1))
    columns = ((1, 2, 0), (4, 1, 2), (5, 3, 1), (7, 1, 3))
    for (window, stride, padding), across in itertools.product(rows, columns):
        given = {"window": window, "stride": stride, "padding": padding}
        given |= dict(zip(("window_w", "stride_w", "padding_w"), across, strict=True))
        found += [{**given, "h": h, "w": w} for h, w in ((7, 7), (5, 12), (4, 5))]
    return found


def both_axes(problem: Pooling) -> list[tuple[int, int]]:
    """Window, stride and padding, each of rows and columns, as torch takes them."""
    down, across = problem.down, problem.across
    return [(down.window, across.window), (down.stride, across.stride), (down.padding, across.padding)]


def test_sizes_are_pytorchs_and_what_is_refused_pytorch_refuses() -> None:
    tried = refused = 0
    sizes = itertools.product(range(1, 6), range(1, 5), (0, 1, 2), (1, 2, 3, 8), (1, 7))
    for window, stride, padding, h, w in sizes:
        tried += 1
        given = {"window": window, "stride": stride, "padding": padding, "h": h, "w": w}
        x = torch.empty(1, 1, h, w, device="meta")
        try:
            want = torch.nn.functional.max_pool2d(x, window, stride, padding).shape[2:]
        except RuntimeError:
            refused += 1
            with pytest.raises(ValidationError):
                pooling(**given)
            continue
        problem = pooling(**given)
        assert (problem.high, problem.wide) == tuple(want)
    assert 0.1 * tried < refused < 0.9 * tried


def test_a_square_window_keeps_the_parameters_that_it_always_had() -> None:
    """By them rows of older results are paired with new ones."""
    square = pooling()
    assert square == pooling(window_w=3, stride_w=2, padding_w=1)
    assert list(square.parameters()) == [
        *("dtype", "kind", "direction", "n", "c", "h", "w", "window", "stride", "padding"),
        *("ceil_mode", "count_include_pad", "layout"),
    ]
    flat = pooling(window_w=7)
    assert flat.parameters() == square.parameters() | {"window_w": 7}
    assert Pooling(**flat.parameters()) == flat != square


@pytest.mark.parametrize("problem", OPERATOR.examples, ids=str)
def test_bytes_moved_are_those_of_the_tensors_and_of_places(problem: Pooling, seed: int) -> None:
    first, *places = inputs_of(problem, seed)
    launch = OPERATOR.implementations["aten"](problem, first, *places)
    moved = sum(one.nbytes for one in (first, *places, *launch.outputs))
    unread = 0
    if problem.direction == "forward":
        held = torch.zeros(problem.h, problem.w, dtype=torch.bool)
        for top, left in itertools.product(range(problem.high), range(problem.wide)):
            row, column = top * problem.stride - problem.padding, left * problem.stride_w - problem.padding_w
            end = (row + problem.window, column + problem.window_w)
            held[max(row, 0) : end[0], max(column, 0) : end[1]] = True
        unread = int((~held).sum()) * problem.n * problem.c * problem.item_byte
    assert problem.byte_moved("aten") == moved - unread == problem.byte_moved("triton")
    assert problem.moved_written("aten") == sum(one.nbytes for one in launch.outputs)


@pytest.mark.parametrize("problem", [p for p in OPERATOR.examples if p.kind == "max"], ids=str)
def test_indices_are_drawn_from_all_taps_of_their_windows(problem: Pooling, seed: int) -> None:
    many = problem.model_copy(update={"n": 40 * problem.window_taps, "c": 8, "direction": "backward"})
    _, indices = inputs_of(many, seed)
    row, column = indices // problem.w, indices % problem.w
    for place, (at, axis) in enumerate(((row, problem.down), (column, problem.across))):
        count = torch.tensor(axis.taps)
        start = (torch.arange(len(count)) * axis.stride - axis.padding).clamp(min=0)
        inside = at.amin((0, 1, 3 - place)), at.amax((0, 1, 3 - place))
        assert torch.equal(inside[0], start) and torch.equal(inside[1], start + count - 1)


@pytest.mark.parametrize("place", range(4))
def test_reference_is_pytorchs_in_float64_for_every_geometry(place: int, seed: int) -> None:
    """Forward, indices, backward by autograd; ties everywhere."""
    for given in geometries()[place::4]:
        x = (uniform(pooling(**given), seed)(2, 3, int(str(given["h"])), int(str(given["w"]))) * 2).round()
        x = x.double().requires_grad_()
        forward = pooling(**given)
        window = both_axes(forward)
        y, indices = torch.ops.aten.max_pool2d_with_indices(x, *window, [1, 1])
        got = OPERATOR.reference(forward, x.detach())
        assert torch.equal(got[0], y) and torch.equal(got[1], indices), str(forward)
        dy = torch.rand_like(y) - 0.5
        (dx,) = torch.autograd.grad(y, x, dy)
        torch.testing.assert_close(
            OPERATOR.reference(pooling(**given, direction="backward"), dy, indices), dx
        )
        y = torch.nn.functional.avg_pool2d(x, *window)
        average = {**given, "kind": "average"}
        torch.testing.assert_close(OPERATOR.reference(pooling(**average), x.detach()), y)
        (dx,) = torch.autograd.grad(y, x, dy)
        torch.testing.assert_close(OPERATOR.reference(pooling(**average, direction="backward"), dy), dx)


def test_reference_prefers_the_last_nan_and_keeps_the_first_of_minus_infinity() -> None:
    x = torch.full((1, 2, 3, 3), -torch.inf, dtype=torch.float64)
    x[0, 1, 0, 1] = x[0, 1, 1, 0] = torch.nan
    problem = pooling(n=1, c=2, h=3, w=3, window=3, stride=1, padding=1)
    want = torch.nn.functional.max_pool2d(x, 3, 1, 1, return_indices=True)
    for got, right in zip(OPERATOR.reference(problem, x), want, strict=True):
        torch.testing.assert_close(got, right.double(), equal_nan=True)


@pytest.mark.parametrize(
    ("direction", "window", "stride", "padding", "size", "c"),
    [
        ("forward", 3, 1, 1, 40, 3),
        ("forward", 28, 1, 0, 28, 96),
        ("backward", 3, 1, 1, 40, 3),
        ("backward", 7, 2, 3, 40, 3),
    ],
)
def test_a_16_bit_sum_would_be_noticed(
    direction: str, window: int, stride: int, padding: int, size: int, c: int, seed: int
) -> None:
    """In a kernel of ours: torch's own backward does just that on a CPU."""
    geometry = {"window": window, "stride": stride, "padding": padding, "h": size, "w": size, "c": c}
    problem = pooling(kind="average", direction=direction, dtype="float16", **geometry)
    inputs = inputs_of(problem, seed)
    if direction == "backward":
        written = outputs_of(OPERATOR.implementations["aten"](problem, *inputs).call())
        assert relative_error(OPERATOR, problem, inputs, written) > tolerance(problem, "triton")
        return
    (x,) = inputs
    padded = torch.nn.functional.pad(x, [problem.padding] * 4)
    total = torch.zeros(2, problem.c, problem.high, problem.wide, dtype=torch.float16)
    for i, j in itertools.product(range(problem.window), repeat=2):
        down, across = ((n - 1) * problem.stride + 1 for n in (problem.high, problem.wide))
        total += padded[:, :, i : i + down : problem.stride, j : j + across : problem.stride]
    y = (total.float() / problem.window**2).half()
    assert relative_error(OPERATOR, problem, inputs, (y,)) > tolerance(problem, "aten")


def test_a_wrong_index_is_seen(seed: int) -> None:
    problem = pooling(dtype="float16", layout="NHWC")
    inputs = inputs_of(problem, seed)
    y, indices = outputs_of(OPERATOR.reference(problem, *inputs))
    assert relative_error(OPERATOR, problem, inputs, (y, indices)) == 0 == tolerance(problem, "triton")
    at = random.Random(seed).randrange(indices.numel())
    indices.view(-1)[at] += 1
    assert relative_error(OPERATOR, problem, inputs, (y, indices)) > 0
