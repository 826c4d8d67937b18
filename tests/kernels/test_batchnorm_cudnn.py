"""Both ways to cuDNN, held to its prototypes and to torch's signatures by stand-ins that record calls."""

import ctypes
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.spec import Unsupported
from kernels.batchnorm import cudnn
from kernels.batchnorm.problem import EPSILON, MOMENTUM
from tests.kernels.problems import inputs_of, usual

make = partial(usual, "batchnorm")
DIRECTIONS = ("forward", "inference", "backward")
LAYOUTS = ("NCHW", "NHWC")


class FakeLibrary:
    """Stands for the shared library: records calls, answers as it is told."""

    def __init__(self, status: dict[str, int] | None = None) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.status = status or {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cudnn"):
            raise AttributeError(name)

        def function(*arguments: Any) -> Any:
            self.calls.append((name, arguments))
            if name == "cudnnGetErrorString":
                return b"CUDNN_STATUS_NOT_SUPPORTED"
            if name.endswith("Size"):
                ctypes.cast(arguments[-1], ctypes.POINTER(ctypes.c_size_t))[0] = (
                    48 if "Reserve" in name else 96
                )
            return self.status.get(name, 0)

        function.restype = None  # type: ignore[attr-defined]
        self.__dict__[name] = function
        return function

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [arguments for called, arguments in self.calls if called == name]


FUNCTION = {
    "forward": "cudnnBatchNormalizationForwardTrainingEx",
    "inference": "cudnnBatchNormalizationForwardInference",
    "backward": "cudnnBatchNormalizationBackwardEx",
}
POINTERS = {
    # Where cuDNN's prototypes have the addresses of inputs, then of outputs.
    "forward": ((6, 12, 13), (10, 18, 19)),
    "inference": ((5, 9, 10, 11, 12), (7,)),
    "backward": ((8, 12, 18, 23, 24), (16, 20, 21)),
}


def on_streams(monkeypatch: pytest.MonkeyPatch, *streams: int) -> None:
    """Let torch's current stream be each of these in turn, as addresses."""
    each = iter(streams)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=next(each)))


@pytest.mark.parametrize("mode", [cudnn.SPATIAL, cudnn.SPATIAL_PERSISTENT])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_cudnn_is_called_as_its_header_says(
    direction: str, layout: str, mode: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_streams(monkeypatch, *range(100, 200))
    problem = make(direction=direction, layout=layout, dtype="float16")
    tensors = inputs_of(problem, seed)
    fake = FakeLibrary()
    launch = cudnn.launch(problem, *tensors, mode=mode, library=cudnn.Library(fake))
    (described,) = fake.named("cudnnSetTensor4dDescriptorEx")
    assert described[1:] == (2, 4, 6, 5, 7, *tensors[0].stride())
    assert fake.named("cudnnDeriveBNTensorDescriptor")[0][2] == mode

    fake.calls.clear()
    assert launch.call() is launch.outputs
    assert [name for name, _ in fake.calls] == ["cudnnSetStream", FUNCTION[direction]]
    assert fake.calls[0][1][1].value == 101  # the second call's own stream
    arguments = fake.calls[1][1]
    assert arguments[1] == mode
    reads, writes = POINTERS[direction]
    assert [arguments[at].value for at in reads] == [tensor.data_ptr() for tensor in tensors]
    assert [arguments[at].value for at in writes] == [output.data_ptr() for output in launch.outputs]
    assert len(arguments) == {"forward": 25, "inference": 14, "backward": 30}[direction]
    if direction != "inference":
        assert [arguments[at].value for at in (-3, -1)] == [96, 48]
    if direction == "forward":
        assert arguments[14].value == MOMENTUM and arguments[17].value == EPSILON


def test_what_cudnn_declines_is_unsupported(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    on_streams(monkeypatch, 1, 1)
    problem = make()
    fake = FakeLibrary({FUNCTION["forward"]: 3000})
    with pytest.raises(Unsupported, match="ForwardTrainingEx: CUDNN_STATUS_NOT_SUPPORTED"):
        cudnn.launch(problem, *inputs_of(problem, seed), mode=cudnn.SPATIAL, library=cudnn.Library(fake))


def test_a_torch_without_cudnn_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: None)
    with pytest.raises(Unsupported, match="without cuDNN"):
        cudnn.loaded(1234)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 990_000)
    with pytest.raises(Unsupported, match=r"libcudnn\.so\.99 cannot be loaded"):
        cudnn.loaded(1234)
