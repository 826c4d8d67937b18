"""The CUDA driver, cuBLASLt and cuDNN as we call them: functions, arguments, constants, structures."""

from __future__ import annotations

import ast
import ctypes
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import kernels
from bench.device import detect
from bench.spec import Unsupported
from bench.worker import graph_kernels
from kernels.batchnorm import cudnn
from kernels.gemm import cublaslt, cublaslt_library
from kernels.gemm.operands import Operands, operands
from kernels.gemm.problem import Gemm
from tests.contract.headers import SITE, Kind, enumerators, numbers, prototypes
from tests.contract.names import sources, words
from tests.contract.plugin import ROOT
from tests.contract.stand_in import GPUS, torch_cuda
from tests.kernels.tensors import TORCH_TYPE, uniform

# ---- the driver


DRIVER = r"cu(?!BLAS|DNN)[A-Z]\w+"
"""Functions of the driver; those of other libraries begin alike."""


def called(pattern: str) -> Iterator[tuple[str, str, int | None]]:
    """(file:line, function, number of arguments or None) of all calls of C functions named by text."""
    for path, source in sources(ROOT):
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.Call):
                continue
            for place, argument in enumerate(node.args):
                if isinstance(argument, ast.Constant) and re.fullmatch(pattern, str(argument.value)):
                    given = node.args[place + 1 :]
                    several = any(isinstance(one, ast.Starred) for one in given)
                    yield f"{path}:{node.lineno}", str(argument.value), None if several else len(given)


def test_functions_of_the_driver() -> None:
    there = prototypes("cuda.h")
    assert len(there) > 300
    spoken = {(w, f"{path}:{n}") for path, source in sources(ROOT) for n, w in words(source, DRIVER)}
    assert not [f"{at}: cuda.h has no {word}" for word, at in spoken if word not in there]
    assert {"cuInit", "cuDriverGetVersion", "cuGraphKernelNodeGetParams_v2"} <= {word for word, _ in spoken}
    wrong = [
        f"{at}: {name} takes {len(there[name])} arguments, given {given}"
        for at, name, given in called(DRIVER)
        if name in there and given not in (None, len(there[name]))
    ]
    assert not wrong, "\n".join(wrong)


def test_the_structure_of_a_kernel_node() -> None:
    fields = ["func", *(f"{part}Dim{axis}" for part in ("grid", "block") for axis in "XYZ")]
    fields += ["sharedMemBytes", "kernelParams", "extra", "kern", "ctx"]
    struct = "CUDA_KERNEL_NODE_PARAMS_v2"
    real = numbers("cuda.h", [f"sizeof({struct})", *(f"offsetof({struct}, {field})" for field in fields)])
    ours = graph_kernels._KernelNode
    names = [name for name, *_ in ours._fields_]
    assert list(real.values()) == [ctypes.sizeof(ours), *(getattr(ours, name).offset for name in names)]


def test_numbers_of_the_driver() -> None:
    real = numbers("cuda.h", [f"CU_GRAPH_NODE_TYPE_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET")])
    assert list(real.values()) == [graph_kernels._KERNEL_NODE, *graph_kernels._OTHERS]


def test_devices_as_the_driver_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stub answers by the names of cuda.h, so every number of an attribute is checked."""
    assert detect.detect("auto").kind == "cpu"
    monkeypatch.setenv("ROOFBENCH_STUB_GPUS", "1")
    for gpu in GPUS:
        there = detect.detect(f"cuda:{gpu.ordinal}")
        assert (there.name, there.capability, there.sm_count) == (gpu.name, gpu.capability, gpu.sm_count)
        assert there.cache_byte >= 40 * 2**20 and there.memory_byte >= 80 * 2**30
        assert there.driver == "CUDA 13.1" and there.datasheet is not None
        assert there.uuid == "GPU-" + "-".join(f"0{gpu.ordinal + 1}" * n for n in (4, 2, 2, 2, 6))


# ---- cuBLASLt


class OnTheHost(cublaslt_library.Library):
    """The library without its handle, which needs a GPU. Descriptors live in host memory."""

    def __init__(self, bindings: Any) -> None:
        self.bindings = bindings
        self.workspace = torch.empty(1 << 20, dtype=torch.uint8)
        self.chosen = {}
        self.handle = 0


@pytest.fixture(scope="module")
def library() -> OnTheHost:
    from nvmath.bindings import cublasLt

    assert cublasLt.get_version() >= 130_000
    return OnTheHost(cublasLt)


def products() -> Iterator[Operands]:
    """Every data type; with a matrix and with a bias added where that exists."""
    for dtype in Gemm.implementation("cublaslt").dtypes:
        for beta in (0, 1) if dtype not in ("int8", "float8_e4m3") else (0,):
            problem = Gemm(m=64, n=48, k=32, dtype=dtype, layout="TN", beta=beta)
            of = operands(problem, *kernels.operator("gemm").inputs(problem, uniform(problem, 1)))
            yield of
            if beta:
                bias = torch.zeros(64, dtype=TORCH_TYPE[dtype])
                yield Operands(problem, of.a, of.b, of.d, c=bias)


@pytest.mark.parametrize("of", list(products()), ids=lambda of: f"{of.problem.dtype} {of.addend}")
def test_descriptors_of_cublaslt(of: Operands, library: OnTheHost) -> None:
    product = cublaslt._Product(library, of)
    question = product.question(of)
    algorithm = cublaslt_library.Algorithm(library, np.zeros(1, dtype=library.bindings.matmul_algo_dtype))
    arguments = product.arguments(of, algorithm, product.operation(of))
    assert len(arguments) == len(prototype_of_matmul()) - 1  # but for the stream
    assert all(isinstance(argument, int) for argument in arguments)
    with pytest.raises(
        Unsupported, match="matmul_algo_get_heuristic: "
    ):  # refused for the handle, not before
        question.heuristic(4)
    assert not question.allows(algorithm)
    with pytest.raises(Unsupported, match="matmul_algo_get_ids: "):
        next(cublaslt_library.algorithms(library, *product.types))


def prototype_of_matmul() -> list[str]:
    from nvmath.bindings import cublasLt

    text = str(cublasLt.matmul.__doc__).splitlines()[0]
    return text[text.index("(") + 1 : text.rindex(")")].split(",")


def test_numbers_of_cublaslt() -> None:
    kinds = {
        torch.float32: "CUDA_R_32F",
        torch.float64: "CUDA_R_64F",
        torch.float16: "CUDA_R_16F",
        torch.int8: "CUDA_R_8I",
        torch.int32: "CUDA_R_32I",
        torch.bfloat16: "CUDA_R_16BF",
        torch.float8_e4m3fn: "CUDA_R_8F_E4M3",
    }
    real = enumerators("library_types.h", "cublas_api.h", "cublasLt.h")
    assert {dtype: real[name] for dtype, name in kinds.items()} == cublaslt._TYPE
    computes = dict.fromkeys(("float16", "bfloat16", "float8_e4m3", "float32"), "CUBLAS_COMPUTE_32F")
    computes |= {"tf32": "CUBLAS_COMPUTE_32F_FAST_TF32", "float64": "CUBLAS_COMPUTE_64F"}
    computes |= {"int8": "CUBLAS_COMPUTE_32I"}
    assert {dtype: real[name] for dtype, name in computes.items()} == cublaslt._COMPUTE
    others = {
        "CUBLASLT_EPILOGUE_BIAS": cublaslt._EPILOGUE_BIAS,
        "CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE": cublaslt._REDUCED_IN_COMPUTE_TYPE,
    }
    assert {name: real[name] for name in others} == others


# ---- cuDNN


class Recorder:
    """Stands for libcudnn: answers success to every function, and keeps what it was given."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: object) -> int:
            self.calls.append((name, arguments))
            return 0

        setattr(self, name, call)
        return call


def kind_of(argument: object) -> Kind:
    """How ctypes passes it."""
    if isinstance(argument, ctypes.c_double):
        return "double"
    if isinstance(argument, ctypes.c_size_t):
        return "size_t"
    return "int" if isinstance(argument, int | ctypes.c_int) else "pointer"


CUDNN_HEADERS = ("cudnn_ops.h", "cudnn_graph.h")


def recorded() -> list[tuple[str, tuple[object, ...]]]:
    """Every call of cuDNN that the operator makes, in each direction, layout, data type and mode."""
    functions = Recorder()
    operator = kernels.operator("batchnorm")
    with torch_cuda(GPUS[1]):
        library = cudnn.Library(functions)
        for problem in operator.examples:
            if problem.missing("cudnn-spatial", "cuda", (9, 0)):
                continue
            tensors = operator.inputs(problem, uniform(problem, 1))
            for mode in (cudnn.SPATIAL, cudnn.SPATIAL_PERSISTENT):
                cudnn.launch(problem, *tensors, mode=mode, library=library)  # type: ignore[arg-type]
    return functions.calls


def test_functions_of_cudnn() -> None:
    there = prototypes(*CUDNN_HEADERS)
    exported = ctypes.CDLL(str(next(SITE.glob("nvidia/cudnn/lib/libcudnn.so.*"))))
    calls = recorded()
    names = {name for name, _ in calls}
    assert len([name for name in names if "BatchNormalization" in name]) >= 6
    for name, arguments in calls:
        assert tuple(map(kind_of, arguments)) == there[name], name
    named = {word for path, source in sources(ROOT) for _, word in words(source, r"cudnn[A-Z]\w+")}
    assert names <= named
    for name in named:
        assert hasattr(exported, name), f"libcudnn does not export {name}"


def test_the_cudnn_that_torch_has_loaded() -> None:
    """By the name under which the operator asks for it."""
    with torch_cuda(GPUS[1]), pytest.raises(Unsupported, match=r"^cudnnCreate: |NVIDIA|CUDA"):
        try:
            cudnn.loaded(0)
        except (
            RuntimeError
        ) as error:  # torch itself finds no driver, which comes after the library was loaded
            raise Unsupported(str(error)) from error


def test_numbers_of_cudnn() -> None:
    real = {
        "CUDNN_BATCHNORM_SPATIAL": cudnn.SPATIAL,
        "CUDNN_BATCHNORM_SPATIAL_PERSISTENT": cudnn.SPATIAL_PERSISTENT,
        "CUDNN_DATA_FLOAT": cudnn._TYPE[torch.float32],
        "CUDNN_DATA_HALF": cudnn._TYPE[torch.float16],
        "CUDNN_DATA_BFLOAT16": cudnn._TYPE[torch.bfloat16],
        "CUDNN_BATCHNORM_OPS_BN": cudnn._NORMALIZE_ONLY.value,
    }
    assert numbers("cudnn_ops.h", list(real)) == real
