"""Optimizer configurations: fused Adam, and a sparse Adam for parameters of single frames."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from nerfstudio.engine.optimizers import AdamOptimizerConfig, OptimizerConfig


@dataclass
class FusedAdamOptimizerConfig(AdamOptimizerConfig):
    """Adam with one kernel per step: several times faster than the default on many small tensors."""

    fused: bool = True
    """Use torch's fused implementation."""


@dataclass
class SparseAdamOptimizerConfig(OptimizerConfig):
    """Adam for rows that are seen in few steps: only they move, and only then."""

    _target: type = field(default_factory=lambda: torch.optim.SparseAdam)


def adam(lr: float) -> dict[str, Any]:
    """An entry of nerfstudio's `optimizers` without a scheduler: the stages set the pace."""
    return {"optimizer": FusedAdamOptimizerConfig(lr=lr, eps=1e-15), "scheduler": None}


def sparse_adam(lr: float) -> dict[str, Any]:
    return {"optimizer": SparseAdamOptimizerConfig(lr=lr, eps=1e-15), "scheduler": None}
