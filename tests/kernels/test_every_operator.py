"""What every operator promises: names, bytes of its tensors, right implementations on a CPU, fair excerpts.

What is special about an operator is in the file of its name.
"""

import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, get_args
from unittest.mock import patch

import pytest
import torch

import kernels
from bench.autotune import inductor
from bench.spec import Problem, Unsupported
from bench.worker.cache_ring import ALIGN_BYTE
from bench.worker.check import outputs_of, poison
from kernels.activations.problem import Function
from kernels.fusion.problem import Chain
from kernels.tensors import stored_dtype
from tests.drawing import covering
from tests.kernels.problems import inputs_of
from tests.kernels.tensors import FLOATS, ONEDNN_DTYPES, relative_error, used

Block = Mapping[str, Any]
"""Parameters with their value, or with a list or tuple of values, of which every combination is a problem."""
WAYS = ("forward", "backward")
LAYOUTS = ("NCHW", "NHWC")
CONVOLVED = ("forward", "activation_gradient", "weight_gradient")
LINEAR: Block = dict(batch=333, inputs=1000, outputs=257)
LARGER: dict[str, list[Block]] = {
    "activations": [dict(function=get_args(Function), direction=WAYS, n=50_000, dtype=FLOATS[:3])],
    "batchnorm": [
        dict(direction=(*WAYS, "inference"), layout=LAYOUTS, dtype=FLOATS[:3], n=8, c=96, h=28, w=28)
    ],
    "fusion": [dict(chain=get_args(Chain), rows=300, length=1024, dtype=FLOATS[:3])],
    "gemm": [
        dict(m=97, n=53, k=4096, dtype=[*FLOATS, "int8"]),
        dict(m=97, n=53, k=4096, dtype=["float8_e4m3", "float8_e5m2"], layout="TN"),
        dict(m=97, n=53, k=256, dtype=FLOATS, batch=12),
    ],
    "layernorm": [dict(direction=WAYS, rows=200, length=5000, dtype=FLOATS)],
    "linear": [
        dict(bias=[False, True], direction=["forward", "weight_gradient"], dtype=FLOATS, **LINEAR),
        dict(direction="activation_gradient", dtype=FLOATS, **LINEAR),
        dict(direction="weight_gradient", bias=True, dtype=["float16", "bfloat16"])
        | dict(batch=16384, inputs=8, outputs=40),
        dict(direction="forward", dtype="int8", batch=64, inputs=4096, outputs=40),
    ],
    "softmax": [dict(direction=WAYS, rows=70, length=20_011, dtype=FLOATS)],
}
"""Problems whose sums are long enough to err, in addition to the examples."""
IN_ROWS: list[Block] = [
    dict(direction=WAYS, rows=rows, length=length)
    for rows, length in ((1499, 3000), (70_000, 70), (40, 130_001))
]
IMAGES: Block = dict(direction=CONVOLVED, window_h=3, window_w=3, padding=1, h=28, w=28)
LARGE: dict[str, list[Block]] = {
    "activations": [dict(function="silu", direction=WAYS, n=61, c=17, h=32, w=33)],
    "attention": [
        dict(direction=WAYS, batch=2, heads=6, kv_heads=2, q_length=700, head_width=32) | more
        for more in ({"causal": [True, False]}, {"kv_length": 1100})
    ],
    "batchnorm": [dict(direction=(*WAYS, "inference"), layout=LAYOUTS, n=2, c=48, h=128, w=128)],
    "convolution": [
        dict(n=4, c=64, k=64, layout=LAYOUTS, **IMAGES),
        dict(n=4, c=128, k=128, groups=2, layout="NHWC", **IMAGES),
        dict(n=25, c=128, k=128, groups=128, layout="NHWC", **IMAGES),
    ],
    "convolution_block": [
        dict(n=7, c=24, h=9, w=7, k=32, window=3, padding=1, layout="NHWC")
        | dict(norm="batchnorm", activation="relu")
    ],
    "fma": [dict(length=(1 << 21) + 5, flop_per_byte=1, block_threads=256)],
    "fusion": [
        dict(chain=["residual", "bias-residual"], rows=rows, length=length)
        for rows, length in ((9001, 300), (70, 40_001))
    ],
    "gemm": [dict(m=1000, n=417, k=301, layout=["NN", "NT", "TN", "TT"], batch=[1, 3])],
    "layernorm": IN_ROWS,
    "linear": [
        dict(direction=direction, bias=[False, *bias], batch=417, inputs=1000, outputs=601)
        for direction, *bias in (("forward", True), ("activation_gradient",), ("weight_gradient", True))
    ],
    "pooling": [
        dict(kind=["max", "average"], direction=WAYS, layout=LAYOUTS, n=12, c=20)
        | dict(h=17, w=17, window=17, stride=1, padding=8)
    ],
    "quantize": [dict(to="float8_e4m3", scaling=["tensor", "row", "mx"], rows=4000, length=1024)],
    "recurrent": [
        dict(cell=["lstm", "gru"], direction=["forward", "activation_gradient"], batch=40)
        | dict(inputs=6, hidden=9, steps=7, layers=2)
    ],
    "softmax": IN_ROWS,
    "stream": [dict(kind="copy", length=(1 << 21) + 5)],
}
"""Problems of float32 too large to be checked whole."""
CHECKED_FLOP = {"attention": 2e7, "convolution": 2e7, "recurrent": 2e5}
"""Of some operators, how much of such a problem is checked: less than in earnest, where it takes seconds."""
WITHOUT_END = ("attention", "quantize")
"""Their excerpts need not have the last element, or not as it is."""
OTHERS_TOO = ("batchnorm", "launch", "layer", "pooling", "stream")
"""They have more tensors than are declared, such as the places of maxima, or fewer: no launch returns running
statistics."""
OF_MANY_STEPS = ("convolution_block", "layer", "recurrent", "training")
"""Here some error is left always: without any, nothing would have been compared."""


def problems(name: str, blocks: Mapping[str, list[Block]]) -> Iterator[Problem]:
    """An operator's, of every combination in these blocks."""
    for block in blocks.get(name, []):
        every = (values if isinstance(values, list | tuple) else [values] for values in block.values())
        for values in itertools.product(*every):
            yield kernels.problem(name).model_validate(dict(zip(block, values, strict=True)))


def runs(name: str) -> list[tuple[str, Problem]]:
    """Implementations that run here without compiling, each with a few of the operator's problems.

    Of each data type each value of every other parameter that is a name, and each size.
    """
    operator = kernels.operator(name)
    every = [
        (way.name, problem)
        for problem in (*operator.examples, *problems(name, LARGER))
        for way in problem.implementations
        if not way.cpp_on_cpu and not problem.missing(way.name, "cpu", None)
    ]

    def property_of(field: str) -> Callable[[tuple[str, Problem]], Hashable]:
        def value(run: tuple[str, Problem]) -> Hashable:
            way, problem = run
            parameter = problem.parameters().get(field)
            return (way, parameter, problem.dtype) if isinstance(parameter, str) else (way, parameter)

        return value

    fields = sorted({field for _, problem in every for field in problem.parameters()})
    return covering(every, f"{name} on a CPU", *map(property_of, fields))


@pytest.mark.parametrize("name", kernels.names())
def test_the_folder_binds_every_declared_name(name: str) -> None:
    operator = kernels.operator(name)
    assert operator is import_module(f"kernels.{name}.operator").OPERATOR
    assert set(operator.implementations) == {way.name for way in kernels.problem(name).implementations}
    assert operator.examples and all(isinstance(each, operator.problem) for each in operator.examples)


RUNS = [(name, *run) for name in kernels.names() for run in runs(name)]


@pytest.mark.parametrize(("name", "way", "problem"), RUNS, ids=str)
@torch.no_grad()
def test_an_implementation_on_a_cpu_is_right(name: str, way: str, problem: Problem, seed: int) -> None:
    """Launched twice into poison; a launch writes what was allocated beforehand, if anything was."""
    operator = kernels.operator(name)
    inputs = inputs_of(problem, seed)
    before = [tensor.to(torch.float64, copy=True) for tensor in inputs]
    try:
        launch = operator.implementations[way](problem, *inputs)
    except Unsupported as reason:
        assert "oneDNN" in str(reason) or "sums dweight and dbias" in str(reason)
        return
    for _ in range(2):
        poison(launch.outputs)
        outputs = outputs_of(launch.call())
    share = used(operator, way, problem, inputs, outputs)
    assert share <= 1 and (share > 1e-4 or name not in OF_MANY_STEPS)
    assert not any(output.requires_grad for output in outputs)
    if launch.outputs:
        assert all(got is own for got, own in zip(outputs, launch.outputs, strict=True))
    assert all(torch.equal(tensor.double(), was) for tensor, was in zip(inputs, before, strict=True))
    check_declared(problem, 1, outputs)


TRACED = [
    (name, problem)
    for name in kernels.names()
    for problem in covering(
        [
            problem
            for problem in (*kernels.operator(name).examples, *problems(name, LARGER))
            if any(way.cpp_on_cpu for way in problem.implementations) and not problem.refusal("inductor")
        ],
        f"{name} as Inductor has it",
        lambda problem: tuple(problem.parameters().get(field) for field in ("direction", "function", "kind")),
        lambda problem: (problem.dtype, problem.parameters().get("layout")),
    )
    if problem.dtype == "float32" or name == "batchnorm"  # others round between steps
]


@pytest.mark.parametrize(("name", "problem"), TRACED, ids=str)
def test_what_inductor_compiles_is_right_uncompiled(name: str, problem: Problem, seed: int) -> None:
    """The same functions, which a launch that is built on a CPU binds to its own outputs."""
    operator = kernels.operator(name)
    inputs = inputs_of(problem, seed)
    inductor.compiled.cache_clear()
    with patch("torch.compile", lambda function, **_: function), suppress(Unsupported):
        launch = operator.implementations["inductor"](problem, *inputs)
        poison(launch.outputs)
        outputs = outputs_of(launch.call())
        assert used(operator, "inductor", problem, inputs, outputs) <= 1
    inductor.compiled.cache_clear()


@pytest.mark.parametrize("name", kernels.names())
def test_inputs_fit_into_what_a_slot_reserves(name: str) -> None:
    """What is of the stored type; memory is first reserved for `byte_stored` and eight tensors' alignment."""
    for problem in covering(kernels.operator(name).examples, f"slots of {name}", lambda p: p.dtype):
        kind, asked = stored_dtype(problem.dtype), []

        def make(*shape: int, dtype: Any = None, kind: Any = kind, asked: list[Any] = asked) -> torch.Tensor:
            asked.append(torch.zeros(shape, dtype=dtype or kind))
            return asked[-1]

        with suppress(RuntimeError):  # pinned memory, without a GPU
            kernels.operator(name).inputs(problem, make)
        stored = sum(tensor.nbytes for tensor in asked if tensor.dtype == kind)
        assert stored <= problem.byte_stored + 8 * ALIGN_BYTE


SUMS: list[Block] = [
    dict(kind=kind, direction=direction, h=size, w=size, window=window, stride=stride, padding=padding)
    | dict(n=2, c=3, layout="NCHW")
    for kind, direction, size, window, stride, padding in (
        ("average", WAYS, 40, 3, 1, 1),
        ("average", "forward", 90, 28, 1, 0),
        ("average", "backward", 40, 7, 2, 3),
        ("max", "backward", 40, 3, 1, 1),
        ("max", "backward", 80, 3, 2, 1),
    )
]
HEADS: Block = dict(direction=WAYS, batch=2, heads=4, kv_heads=2, q_length=257, head_width=64)
NORMED: Block = dict(direction=(*WAYS, "inference"), layout="NCHW", n=8, c=64, h=14, w=14)
CONVOLUTION: Block = dict(n=4, c=64, k=64, layout="NHWC") | IMAGES | dict(h=14, w=14)
ROUNDED: list[tuple[str, str, float, Sequence[str], list[Block]]] = [
    # The least of 150 draws is 0.047, forward in float32, on a CPU whose products are added without rounding.
    ("attention", "unfused", 0.025, FLOATS[:3], [HEADS]),
    ("batchnorm", "aten", 0.4, FLOATS[:2], [NORMED]),
    ("convolution", "onednn", 0.05, ONEDNN_DTYPES, [CONVOLUTION]),
    ("fusion", "aten", 0.05, FLOATS[:3], [dict(chain=get_args(Chain), rows=300, length=1024)]),
    ("pooling", "aten", 0.05, FLOATS[:3], SUMS),
]
"""Implementations of a CPU that round as much as their tolerance allows, and what they use of it at least."""


@pytest.mark.parametrize(
    ("name", "way", "least", "problem"),
    [
        (name, way, least, problem)
        for name, way, least, dtypes, blocks in ROUNDED
        for problem in problems(name, {name: [{"dtype": dtypes, **block} for block in blocks]})
    ],
    ids=str,
)
@torch.no_grad()
def test_a_tolerance_is_little_more_than_what_rounding_does(
    name: str, way: str, least: float, problem: Problem, seed: int
) -> None:
    operator = kernels.operator(name)
    inputs = inputs_of(problem, seed)
    outputs = outputs_of(operator.implementations[way](problem, *inputs).call())
    assert least < used(operator, way, problem, inputs, outputs) <= 1


@pytest.mark.parametrize("name", [name for name in kernels.names() if name != "transfer"])  # pins memory
def test_inputs_are_what_the_problem_declares(name: str, seed: int) -> None:
    """And no two are equal, as from equal seeds: that would hide that a kernel takes one for another."""
    for problem in kernels.operator(name).examples:
        inputs = inputs_of(problem, seed)
        check_declared(problem, 0, inputs)
        as_they_come = name == "layer" or {"layout", "pitch"} & {*problem.parameters()}
        assert as_they_come or all(tensor.is_contiguous() for tensor in inputs)
        for one, other in itertools.combinations(inputs, 2):
            same_kind = one.shape == other.shape and one.is_floating_point() and one.numel() > 8
            assert not (same_kind and torch.equal(one, other))


def check_declared(problem: Problem, written: int, tensors: Sequence[torch.Tensor]) -> None:
    """Those read, or written, have the shapes, the bytes and the layout of which a problem's counts are made.

    The type of layer normalization's statistics depends on the device.
    """
    if (layout := problem.parameters().get("layout")) in LAYOUTS:
        order = torch.channels_last if layout == "NHWC" else torch.contiguous_format
        assert all(t.is_contiguous(memory_format=order) for t in tensors if t.dim() == 4)
    if "tensors" not in vars(type(problem)):
        counted = problem.byte_written if written else problem.byte_read
        assert counted in (0, byte(tensors)) or problem.operator == "latency"
        return
    declared, as_many = problem.tensors[written].items(), problem.operator not in OTHERS_TOO
    for (name, spec), tensor in zip(declared, tensors, strict=as_many):
        assert tuple(tensor.shape) == spec.shape, name
        kept = problem.operator == "layernorm" and name in ("mean", "rstd")
        assert kept or byte([tensor]) == problem.byte_of(spec), name


def byte(made: Sequence[torch.Tensor]) -> int:
    """Of the elements of all of them, gaps between rows left out."""
    return sum(tensor.numel() * tensor.element_size() for tensor in made)


ONCE: list[tuple[float, str, Block]] = [
    (0.05, "softmax", {"direction": WAYS, "rows": [512], "length": [768], "dtype": FLOATS[:3]}),
    (0.05, "layernorm", {"direction": WAYS, "rows": [512], "length": [768], "dtype": FLOATS[:3]}),
    (0.3, "fusion", {"chain": get_args(Chain), "rows": [300], "length": [1024], "dtype": FLOATS[:2]}),
]


@pytest.mark.parametrize(
    ("least", "problem"),
    [(least, problem) for least, name, block in ONCE for problem in problems(name, {name: [block]})],
    ids=str,
)
def test_a_tolerance_of_ours_is_little_more_than_one_rounding(
    least: float, problem: Problem, seed: int
) -> None:
    """Of what torch computes in float32, as our kernels do: results are rounded when they are stored."""
    operator, inputs = kernels.operator(problem.operator), inputs_of(problem, seed)
    wide = problem.model_copy(update={"dtype": "float32"})
    plain = outputs_of(operator.implementations["aten"](wide, *(tensor.float() for tensor in inputs)).call())
    kinds = (stored_dtype(spec.dtype or problem.dtype) for spec in problem.tensors[1].values())
    rounded = tuple(tensor.to(kind) for tensor, kind in zip(plain, kinds, strict=True))
    assert least < used(operator, "triton", problem, inputs, rounded) <= 1


@pytest.mark.parametrize(
    "problem",
    covering(
        [
            problem
            for name in ("layer", "recurrent", "training")
            for problem in kernels.operator(name).examples
            if problem.dtype == "float32"
        ],
        "an error in any output",
        lambda problem: tuple(problem.parameters().get(of) for of in ("kind", "cell", "optimizer")),
        lambda problem: (problem.operator, problem.parameters().get("direction")),
    ),
    ids=str,
)
def test_an_error_in_any_output_shows(problem: Problem, seed: int) -> None:
    """Of every output, an element that is off by a fifth of the largest, and a NaN."""
    operator, inputs = kernels.operator(problem.operator), inputs_of(problem, seed)
    way = next(name for name in ("eager", "loop", "sdpa") if name in operator.implementations)
    outputs = outputs_of(operator.implementations[way](problem, *inputs).call())
    for place, output in enumerate(outputs):
        for value in (1.2 * output, torch.full_like(output, torch.nan)):
            wrong = torch.where(output.abs() == output.abs().max(), value, output)
            changed = (*outputs[:place], wrong, *outputs[place + 1 :])
            assert used(operator, way, problem, inputs, changed) > 1


CUT = [name for name in kernels.names() if kernels.operator(name).excerpt]


@pytest.mark.parametrize("name", [name for name in CUT if name not in ("convolution_block", "transfer")])
def test_a_small_problem_is_checked_whole(name: str, seed: int) -> None:
    operator = kernels.operator(name)
    assert operator.excerpt
    for problem in covering(operator.examples, f"small {name}", lambda problem: problem.dtype):
        inputs = inputs_of(problem, seed)
        outputs = outputs_of(operator.reference(problem, *inputs))
        smaller, _, part = operator.excerpt(problem, inputs, outputs)
        assert smaller.flop == problem.flop and smaller.byte == problem.byte
        assert sum(tensor.numel() for tensor in part) == sum(tensor.numel() for tensor in outputs)


OF_FLOAT32 = {name: [{"dtype": "float32", **block} for block in blocks] for name, blocks in LARGE.items()}


@pytest.mark.parametrize("name", [name for name in LARGE if name != "quantize"])  # which rounds to 8 bits
def test_of_float32_an_error_of_a_5000th_shows_in_every_output(name: str) -> None:
    """Whatever a kernel leaves out or adds: rounding explains less, of every implementation."""
    for problem in problems(name, OF_FLOAT32):
        for way in (each.name for each in problem.implementations if not problem.refusal(each.name)):
            allowed = kernels.operator(name).tolerance(problem, way)
            assert max(allowed if isinstance(allowed, Sequence) else [allowed]) < 2e-4


CUT_BY = ("direction", "rows", "layout", "kind", "groups", "bias", "chain", "scaling", "cell", "causal")
TO_CUT = covering(
    [(name, problem) for name in LARGE for problem in problems(name, OF_FLOAT32)],
    "excerpts",
    *(lambda case, field=field: (case[0], case[1].parameters().get(field)) for field in CUT_BY),
)


@pytest.mark.parametrize(("name", "problem"), TO_CUT, ids=str)
def test_an_excerpt_is_part_of_the_problem_and_notices_an_error(
    name: str, problem: Problem, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in every third row, or column, of an output. The last element is always there."""
    if name in CHECKED_FLOP:
        monkeypatch.setattr(f"kernels.{name}.operator._CHECKED_FLOP", CHECKED_FLOP[name])
    operator = kernels.operator(name)
    assert operator.excerpt
    inputs = inputs_of(problem, seed)
    outputs = outputs_of(operator.reference(problem, *inputs))
    smaller, some, part = operator.excerpt(problem, inputs, outputs)
    assert (smaller.flop or smaller.byte) <= 0.6 * (problem.flop or problem.byte)
    for kept, want, whole in zip(part, outputs_of(operator.reference(smaller, *some)), outputs, strict=True):
        torch.testing.assert_close(kept, want, rtol=1e-9, atol=1e-9)
        assert name in WITHOUT_END or (kept == whole.flatten()[-1]).any()
    for place, output in enumerate(outputs):
        wrong = output.clone()
        rows = wrong if wrong.dim() == 1 else wrong.movedim(-2, 0)
        rows[::3] += 0.1 * output.abs().max()
        changed = (*outputs[:place], wrong, *outputs[place + 1 :])
        assert relative_error(operator, problem, inputs, changed) > 0.05
