"""The batch normalization kernels, run by the repaired interpreter under the sanitizer."""

import math
from functools import partial

import pytest
import torch

from bench.spec import Launch
from kernels.batchnorm import passes, two_pass
from kernels.batchnorm.operator import OPERATOR
from kernels.batchnorm.problem import EPSILON, MOMENTUM, BatchNorm
from kernels.batchnorm.two_pass import Tile
from tests.drawing import covering
from tests.kernels.interpreted import Ran, SpoiledByNan, Tensors, ran
from tests.kernels.interpreter import repaired
from tests.kernels.problems import usual
from tests.kernels.sanitizer import placed

SMALL = Tile(64, 4, 2)
"""Blocks of which the examples hold several, the last one ragged."""
FEW = 3
"""Multiprocessors: with two programs on each, channels of several blocks are shared."""

SIZES = [(2, 1, 1, 1), (3, 5, 1, 1), (2, 13, 7, 7), (3, 17, 5, 3), (4, 8, 4, 8), (1, 1, 1, 641)]
make = partial(usual, "batchnorm")
DTYPES = ("float16", "bfloat16", "float32")


WAYS = ("forward", "inference", "backward")


def problems() -> list[BatchNorm]:
    """Every size in each direction, every type; a deep run has every combination."""
    every = [
        BatchNorm.model_validate(dict(direction=way, n=n, c=c, h=h, w=w, dtype=DTYPES[(i + k) % 3]))
        for i, (n, c, h, w) in enumerate(SIZES)
        for k, way in enumerate(WAYS)
    ]
    return covering(
        every,
        "interpreted batchnorm",
        lambda p: (p.n, p.c, p.h, p.w),
        lambda p: p.direction,
        lambda p: p.dtype,
    )


class TestBatchNorm(SpoiledByNan):
    operator = OPERATOR
    cases = tuple((problem, SMALL) for problem in problems())
    spoiled = tuple((make(n=2, c=3, h=4, w=5, direction=way), SMALL) for way in WAYS)

    def launch(self, problem: BatchNorm, inputs: Tensors, configuration: Tile) -> Launch:
        return two_pass.launch(problem, *inputs, tile=configuration, multiprocessors=FEW)

    def counted(self, problem: BatchNorm, configuration: Tile, inputs: Tensors, done: Ran) -> None:
        """Traffic of every tensor: bulk as in byte_moved, channels once for each program."""
        loads, (loaded, stored, changed) = done.watch.loads, done.byte
        parts = two_pass.parts(problem, configuration, FEW)
        bulk = problem.elements * problem.item_byte
        passes = 1 if problem.direction == "inference" else 2
        # The shift is one more element of each channel, loaded by each program.
        shift = parts * problem.c * problem.item_byte if problem.direction == "forward" else 0
        images = inputs[: 2 if problem.direction == "backward" else 1]
        for tensor in images:
            assert loads.within(tensor).distinct_byte == bulk
        assert sum(loads.within(tensor).byte for tensor in images) == passes * len(images) * bulk + shift
        moved = (passes * len(images) + 1) * bulk
        compulsory = problem.byte - (len(images) + 1) * bulk
        assert moved + compulsory == problem.byte_moved("triton")
        assert changed == (0 if passes == 1 else 4 * problem.c * parts)
        # All that is no bulk: at most 6 loads and 4 stores a channel by each program, partials and counters
        # included.
        rest = loaded + stored - moved - shift
        assert rest <= 4 * problem.c * parts * 12 + 20 * problem.c

    def test_running_statistics(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """After one launch from 0 and 1, and after two: the variance is the unbiased one."""
        problem = make(n=3, c=5, h=4, w=7)
        inputs = self.inputs(problem, seed)
        running = (torch.zeros(problem.c), torch.ones(problem.c))
        monkeypatch.setattr(two_pass, "running_statistics", lambda c, device: running)
        launch = self.launch(problem, inputs, SMALL)
        variance, mean = torch.var_mean(inputs[0].double(), dim=(0, 2, 3), correction=1)
        for times in (1, 2):
            ran(launch)
            share = 1 - (1 - MOMENTUM) ** times
            torch.testing.assert_close(running[0].double(), share * mean, rtol=1e-5, atol=1e-7)
            want = 1 - share + share * variance
            torch.testing.assert_close(running[1].double(), want, rtol=1e-6, atol=0)

    def test_a_mean_of_1000_costs_no_digits(self, seed: int) -> None:
        """Deviation 2 about 1000: 1/deviation as good as about 0, y as good as a float32 mean allows."""
        problem = make(n=4, c=3, h=8, w=16)
        x, weight, bias = self.inputs(problem, seed)
        x = 1000 + 2 * math.sqrt(3) * x
        found = self.outputs(problem, (x, weight, bias), SMALL)
        y, mean, rstd = OPERATOR.reference(problem, x, weight, bias)
        # The shift may lie sqrt(3) deviations off, so squares about it sum up to 4 times the variance they
        # leave, and the square of the mean that is taken off to 3 times. In units of 2^-24, with sums of 512
        # in 9 levels: 4 * (3 + 9) of the squares, 3 * 2 * (1 + 9) of the mean; half of both by the root, 2 in
        # the end.
        off = float((found[2] / rstd - 1).abs().max())
        assert off < ((4 * (3 + 9) + 3 * 2 * (1 + 9)) / 2 + 2) * 2.0**-24
        half_step = 1000 * 2.0**-24
        assert float((found[1] - mean).abs().max()) <= 2 * half_step
        assert float((found[0] - y).abs().max()) <= 2 * half_step / 2 + 1e-6

    def test_infinity_spoils_its_channel_only(self, seed: int) -> None:
        """As in torch: all of the channel's y is NaN, the others are untouched."""
        problem = make(n=2, c=3, h=4, w=5)
        x, weight, bias = self.inputs(problem, seed)
        x[1, 1, 2, 3] = math.inf
        found, *_ = self.outputs(problem, (x, weight, bias), SMALL)
        y = torch.nn.functional.batch_norm(x, None, None, weight, bias, True, MOMENTUM, EPSILON)
        assert y[:, 1].isnan().all() and torch.equal(y.isnan(), found.isnan())
        torch.testing.assert_close(found[:, ::2], y[:, ::2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kernel", ["normalize", "input_gradient", "statistics", "gradient_sums"])
def test_offsets_beyond_32_bits(kernel: str, seed: int) -> None:
    """The last block of a tensor of 2^31 + 2^21 elements: only its pages are ever touched."""
    c, plane, images = 2**17 + 2**7, 16, 1024
    x, dy, out = (torch.empty(images * plane * c, dtype=torch.float16) for _ in range(3))
    assert x.numel() > 2**31
    tile = Tile(64, 4, 1)
    problem = BatchNorm(direction="forward", n=images, c=c, h=4, w=4, dtype="float16")
    # Each block is one part, so the last program takes the last block.
    blocks = problem.channel_elements // tile.rows
    options, total = two_pass.sizes(problem, tile, blocks), c * blocks
    last, of_images = slice(c - 1, c), slice(-(tile.rows // plane), None)
    block, gradient, written = (t.view(-1, c, plane)[of_images, last] for t in (x, dy, out))
    shift = x.view(-1, c, plane)[0, last, :1]
    generator = torch.Generator().manual_seed(seed)
    for tensor in (block, gradient, shift):
        tensor.copy_(torch.rand(tensor.shape, generator=generator) - 0.5)
    of_channel = torch.rand(6, c, generator=generator) + 0.5
    mean, rstd, weight, bias, dweight, dbias = of_channel
    partials, counters = torch.empty(2 * blocks * c), torch.zeros(c, dtype=torch.int32)
    arguments: dict[str, Tensors] = {
        "normalize": (x, out, mean, rstd, weight, bias),
        "input_gradient": (x, dy, out, mean, rstd, weight, dweight, dbias),
        "statistics": (x, partials, counters, mean, rstd, weight, bias),
        "gradient_sums": (x, dy, partials, counters, mean, rstd, dweight, dbias),
    }
    options |= {"normalize": {"EPSILON": EPSILON, "FROM_VARIANCE": False}}.get(kernel, {})
    options |= {"statistics": {"EPSILON": EPSILON, "MOMENTUM": MOMENTUM}}.get(kernel, {})
    # The second kernel of a pair runs backwards: its first program takes the last block.
    first = kernel in ("statistics", "gradient_sums")
    with repaired(), placed((total - 1 if first else 0,), (total,)):
        getattr(passes, kernel)[(1,)](*arguments[kernel], **options)
    got, g = block.double(), gradient.double()
    m, s, w, b, dw, db = (row[last].double()[:, None] for row in of_channel)
    if first:
        d = got - shift.double() if kernel == "statistics" else g
        e = d * d if kernel == "statistics" else g * (got - m)
        sums = partials.view(2, c, blocks)[:, last, -1]
        want = torch.stack([d.sum((0, 2)), e.sum((0, 2))])
        torch.testing.assert_close(sums.double(), want, rtol=1e-4, atol=1e-5)
        return
    count = problem.channel_elements
    y = (got - m) * s * w + b
    dx = w * s * (g - db / count - (got - m) * dw * s / count)
    torch.testing.assert_close(written.double(), y if kernel == "normalize" else dx, rtol=2e-3, atol=1e-3)
