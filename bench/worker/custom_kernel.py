"""Custom kernels: a function in any file of the user's, made an implementation of an operator.

It takes the operator's input tensors in their order and returns the outputs. A parameter called `out` is
given the outputs to fill instead (a tuple if there are several), one called `problem` the problem's numbers.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from bench.case_name import parameter_words
from bench.causes import cause
from bench.errors import unknown
from bench.spec import DeviceKind, Launch, Operator, Problem, Unsupported
from bench.worker.check import outputs_of, poison, put_back, same
from bench.worker.kernel_file import FILES, OURS, loaded
from kernels.tensors import stored_dtype

if TYPE_CHECKING:
    from bench.spec import Tensors

DIFFERENT = (12, 20, 28, 36, 44, 52, 60, 68)
"""Sizes of which no two are alike, in multiples that few operators refuse."""
GUARD_BYTE, GUARD = 4096, 0xA5
"""Bytes before and behind each output of a check, and what they hold: a kernel must leave them alone."""
_FORMS: dict[tuple[str, Problem], Tensors] = {}


class BadKernel(Exception):
    """The function cannot be an implementation; the message says where and why."""


class CustomKernel(NamedTuple):
    """A function of a user's file, loaded."""

    function: Callable[..., Any]
    configuration: str
    """What tells two versions of it apart: the file's name and a hash of its text."""
    takes: frozenset[str]
    """Which of `out` and `problem` are its parameters."""


def load(kernel: str) -> CustomKernel:
    """The function of `FILE:FUNCTION`. BadKernel if the file cannot be run or has no such function."""
    path, _, name = kernel.rpartition(":")
    file = Path(path).name
    try:
        module, digest = loaded(path)
    except (Exception, SystemExit) as error:
        where = place(error) or f"{file}: "
        raise BadKernel(f"{where}cannot be imported: {cause(error)}{_remedy(error)}") from error
    functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("__")]
    if name not in functions:
        raise BadKernel(unknown("function", name, file, functions))
    takes: set[str] = set()
    with suppress(ValueError):  # of what is compiled from C++ Python knows no parameters
        takes = inspect.signature(getattr(module, name)).parameters.keys() & {"out", "problem"}
    return CustomKernel(getattr(module, name), f"{file} {digest}", frozenset(takes))


def _remedy(error: BaseException) -> str:
    """What makes an import work that could not."""
    name = ((error.name if isinstance(error, ImportError) else None) or "").partition(".")[0]
    if name in OURS:
        return f"; this {name} is roofbench's: no other one is installed or lies beside the file"
    if isinstance(error, ModuleNotFoundError) and name:
        return f"; if it is yours, set PYTHONPATH to the folder that holds {name}"
    relative = isinstance(error, ImportError) and "relative import" in str(error)
    return "; with an __init__.py its folder is a package, whose modules it may import so" if relative else ""


def place(error: BaseException) -> str:
    """`mine.py:7: `, the line of a loaded file that was running at the error; empty if none was."""
    at = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        at.append((error.filename or "", error.lineno))
    return next((f"{Path(file).name}:{line}: " for file, line in reversed(at) if file in FILES), "")


# ---- the implementation


def with_custom(operator: Operator, name: str, kernel: CustomKernel, device: str, guarded: bool) -> Operator:
    """The operator with this kernel as implementation `name`; its error may be as large as the library's.

    `guarded`: each launch is checked for what it does to other memory, and for the form of its outputs.
    """
    library = next((each.name for each in operator.problem.implementations if device in each.devices), name)

    def build(problem: Problem, *inputs: torch.Tensor) -> Launch:
        if guarded:
            return _guarded(operator, kernel, problem, inputs)
        forms = forms_of_outputs(operator, problem, inputs) if "out" in kernel.takes else ()
        outputs = tuple(torch.empty_like(form, device=inputs[0].device) for form in forms)
        return _launch(kernel, problem, inputs, outputs)

    return replace(
        operator,
        implementations={**operator.implementations, name: build},
        tolerance=lambda problem, asked: operator.tolerance(problem, library if asked == name else asked),
    )


def _launch(kernel: CustomKernel, problem: Problem, inputs: Tensors, outputs: Tensors) -> Launch:
    """The launch of the kernel on these inputs; `outputs` are empty if it returns what it allocates."""
    more: dict[str, Any] = {"problem": problem} if "problem" in kernel.takes else {}
    if outputs:
        more["out"] = outputs[0] if len(outputs) == 1 else outputs

    def call() -> torch.Tensor | Tensors:
        try:
            returned = kernel.function(*inputs, **more)
        except NotImplementedError as error:
            raise Unsupported(f"{place(error)}{cause(error)}") from error
        if not outputs and not isinstance(returned, torch.Tensor | tuple):
            what = f"it returns {type(returned).__name__}, no tensor"
            raise BadKernel(f"{what}; one that fills a tensor has a parameter called out")
        return outputs or returned

    return Launch(call, outputs, configuration=kernel.configuration)


def _guarded(operator: Operator, kernel: CustomKernel, problem: Problem, inputs: Tensors) -> Launch:
    """The launch whose call raises BadKernel if it writes elsewhere or its outputs have another form."""
    device, forms = inputs[0].device, forms_of_outputs(operator, problem, inputs)
    memories, outputs = [], []
    for form in forms if "out" in kernel.takes else ():
        size = 2 * GUARD_BYTE + form.untyped_storage().nbytes()
        memories.append(memory := torch.full((size,), GUARD, dtype=torch.uint8, device=device))
        inner = memory[GUARD_BYTE:-GUARD_BYTE].view(form.dtype)
        outputs.append(inner.as_strided(form.shape, form.stride()))
    launch = _launch(kernel, problem, inputs, tuple(outputs))

    def call() -> torch.Tensor | Tensors:
        # What a kernel allocates and does not write must not hold an earlier right result.
        poison([torch.empty_like(form, device=device) for form in forms])
        with put_back(inputs) as before:
            written = launch.call()
            kept = [same(*pair) for pair in zip(inputs, before, strict=True)]
        if not all(kept):
            raise BadKernel(f"it changes input {kept.index(False) + 1}, which other launches read")
        for memory in memories:
            for where, edge in (("before", memory[:GUARD_BYTE]), ("behind", memory[-GUARD_BYTE:])):
                if changed := int((edge != GUARD).sum()):
                    raise BadKernel(f"it writes {changed} bytes {where} its output")
        if (found := text_of(outputs_of(written))) != text_of(forms):
            raise BadKernel(f"its output is {found}; the operator's is {text_of(forms)}")
        return written

    return replace(launch, call=call)


def text_of(tensors: Sequence[torch.Tensor]) -> str:
    """`float32 [13, 7], int64 [13]`."""
    return ", ".join(f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}" for tensor in tensors)


def able(operator: Operator, problem: Problem, device: torch.device) -> list[str]:
    """The implementations of ours that can run this problem on such a device, the first library first."""
    kind: DeviceKind = "cpu" if device.type == "cpu" else "cuda"
    of = torch.cuda.get_device_capability() if kind == "cuda" else None
    names = (each.name for each in operator.problem.implementations)
    return [name for name in names if not problem.missing(name, kind, of)]


def forms_of_outputs(operator: Operator, problem: Problem, inputs: Tensors) -> Tensors:
    """Tensors without memory that are like the outputs of the first implementation that runs on this device.

    Unsupported if none does.
    """
    if (form := _FORMS.get((problem.operator, problem))) is not None:
        return form
    names = (name for name in able(operator, problem, inputs[0].device) if name in operator.implementations)
    # What compiles or tunes comes last: only the form of its outputs is wanted.
    for name in sorted(names, key=lambda name: name.startswith(("inductor", "triton"))):
        with suppress(Exception):  # a library that is not installed or declines: the next one may do
            launch = operator.implementations[name](problem, *inputs)
            outputs = launch.outputs or outputs_of(launch.call())
            made = tuple(torch.empty_like(tensor, device="meta") for tensor in outputs)
            return _FORMS.setdefault((problem.operator, problem), made)
    raise Unsupported(f"no implementation of {problem.operator} runs here to show the form of its outputs")


# ---- sizes to check it at, and a file to begin with


def awkward(
    operator: Operator, kernel: CustomKernel, problems: Sequence[Problem], device: torch.device
) -> list[Problem]:
    """Problems of the examples' sizes, and otherwise as requested: words, and numbers that are no sizes.

    A kernel cannot know a window or a stride from its inputs unless it takes `problem`. And whoever asks for
    beta = 0, or for a single product, need not take a third input or a batch.
    """
    first = operator.examples[0].model_dump()
    fixed = {name for name, value in first.items() if isinstance(value, str | bool | float)}
    for name in first.keys() - fixed:
        shapes, others = _shapes_beside(operator, name, device)
        is_hidden = shapes == others and "problem" not in kernel.takes
        if is_hidden or [*map(len, shapes)] != [*map(len, others)]:
            fixed.add(name)
    varied: dict[Problem, None] = {}
    for problem, example in product(problems, operator.examples):
        with suppress(ValueError):  # such words do not go with every size
            varied[operator.problem(**example.model_dump() | problem.model_dump(include=fixed))] = None
    return list(varied)


def _shapes_beside(operator: Operator, name: str, device: torch.device) -> list[list[torch.Size]]:
    """Shapes of the inputs of an example, and of one where this number is one more; unlike without one."""
    for example in operator.examples:
        with suppress(ValueError):  # the next number may not divide another one: try at another example
            more = operator.problem(**example.model_dump() | {name: getattr(example, name) + 1})
            return [[x.shape for x in inputs_of(operator, each, device)] for each in (example, more)]
    return [[], [torch.Size([0])]]


def inputs_of(operator: Operator, problem: Problem, device: torch.device) -> Tensors:
    """Inputs of a small problem, all zero."""

    def zeros(*shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype or stored_dtype(problem.dtype), device=device)

    return tuple(operator.inputs(problem, zeros))


EXAMPLE = '''\
"""A kernel of {kind}: python -m bench run {kind} {asked} --kernel THIS_FILE:{kind}

    inputs: {inputs}
    output: {outputs}

Tensors are row-major: the last axis is contiguous. A parameter `out` would be given the output to
fill. A size that it cannot do raises NotImplementedError. Without a parameter `problem` it is called
with its inputs alone.
"""

import torch

from kernels.{kind}.operator import OPERATOR  # for its reference in float64, which yours replaces


def {kind}({names}, problem):
    right = OPERATOR.reference(problem, {names})
    return {right}
'''


def example_file(operator: Operator, given: dict[str, Any], device: torch.device) -> str:
    """The text of a file with a kernel for a problem like the one given: right, and slow. ValueError."""
    words = {name: value for name, value in given.items() if isinstance(value, str | bool)}
    alike = [example for example in operator.examples if words.items() <= example.model_dump().items()]
    problem = operator.problem(**{**(alike or operator.examples)[0].model_dump(), **given})
    inputs = inputs_of(operator, problem, device)
    forms = forms_of_outputs(operator, problem, inputs)
    names, axes = _names(operator, problem, len(inputs)), _axes(operator, problem, device) or repeat("")
    described = [f"{text_of([x])}{axis}" for x, axis in zip((*inputs, *forms), axes, strict=False)]
    single = isinstance(operator.reference(problem, *inputs), torch.Tensor)
    types = ", ".join(str(form.dtype) for form in forms)
    return EXAMPLE.format(
        kind=problem.operator,
        asked=" ".join(parameter_words(problem.parameters())),
        inputs=", ".join(map(" ".join, zip(names, described, strict=False))),
        outputs=", ".join(described[len(inputs) :]),
        names=", ".join(names),
        right=f"right.to({types})" if single else f"tuple(map(torch.Tensor.to, right, [{types}]))",
    )


def _names(operator: Operator, problem: Problem, count: int) -> list[str]:
    """Names of the inputs: as the problem declares them, or as the reference calls them."""
    parameters = list(inspect.signature(operator.reference).parameters.values())[1:]
    names = [each.name for each in parameters if each.kind is not inspect.Parameter.VAR_POSITIONAL]
    with suppress(NotImplementedError):
        names = [*problem.tensors[0]] or names
    return [*names[:count], *(f"input{number}" for number in range(len(names) + 1, count + 1))]


def _axes(operator: Operator, problem: Problem, device: torch.device) -> list[str]:
    """` = [k, m]` of each input, then output: the parameters that are the lengths of its axes; or none.

    They are found at sizes that are all different.
    """
    sizes = {name: value for name, value in problem.model_dump().items() if type(value) is int and value > 1}
    different = dict(zip(sizes, DIFFERENT, strict=False))
    try:
        other = operator.problem(**problem.model_dump() | different)
    except ValueError:  # a size that is no multiple of another one
        return []
    of_length = {length: name for name, length in different.items()}
    inputs = inputs_of(operator, other, device)
    shapes = [tensor.shape for tensor in (*inputs, *forms_of_outputs(operator, other, inputs))]
    return [f" = [{', '.join(of_length.get(length, str(length)) for length in shape)}]" for shape in shapes]
