"""The running statistics that a training pass moves: state of the layer, neither input nor output."""

from __future__ import annotations

import torch

from bench.spec import Tensors


def running_statistics(c: int, device: torch.device) -> Tensors:
    """Mean [c], 0, and variance [c], 1, as a new layer has them; float32."""
    return torch.zeros(c, device=device), torch.ones(c, device=device)
