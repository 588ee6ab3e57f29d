"""One pure function per term of the training loss."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import avg_pool2d


def photometric(
    pictures: Float[Tensor, "F H W 3"], targets: Float[Tensor, "F H W 3"], blur: int = 1
) -> Float[Tensor, ""]:
    """Mean absolute difference, of residuals averaged over overlapping squares of blur x blur pixels."""
    residual = pictures - targets
    if blur > 1:
        residual = avg_pool2d(residual.movedim(-1, 1).contiguous(), blur, (blur + 1) // 2)
    return residual.abs().mean()


def bending(before: Float[Tensor, "F K"], here: Float[Tensor, "F K"], after: Float[Tensor, "F K"]) -> Float[Tensor, ""]:
    """Mean squared second difference of motions along time, for motions that must not jitter."""
    return (before - 2 * here + after).square().mean()


def psnr(squared_error: float) -> float:
    """Peak signal-to-noise ratio in dB of a mean squared error on pictures in [0, 1]."""
    return float(-10.0 * torch.log10(torch.tensor(max(squared_error, 1e-12), dtype=torch.float64)))
