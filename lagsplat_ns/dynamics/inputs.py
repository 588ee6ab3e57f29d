"""Measured inputs: how pressures, torques or voltages act on the coordinates, and their values between samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lagsplat_ns.dynamics.parts import multiply, replaced

__all__ = ["InputFunction", "InputMap", "interpolated_inputs"]

InputFunction = Callable[[Tensor], Tensor]
"""Inputs at times: seconds [*] to values [*, m]."""


class InputMap(nn.Module):
    """The generalized force b(q)^T u of m inputs: constant b, or b linear in q.

    Free parameters: b_0 [d, m], then for `linear` db/dq_k [d, m] for every scaled coordinate k.
    """

    center: Tensor
    scale: Tensor
    prior_scale: Tensor

    def __init__(self, latent_dim: int, num_inputs: int, kind: Literal["constant", "linear"] = "constant") -> None:
        super().__init__()
        self.latent_dim, self.num_inputs, self.kind = latent_dim, num_inputs, kind
        blocks = 1 if kind == "constant" else 1 + latent_dim
        self.weights = nn.Parameter(torch.zeros(blocks, latent_dim, num_inputs, dtype=torch.float64))
        self.register_buffer("center", torch.zeros(latent_dim, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(latent_dim, dtype=torch.float64))
        self.register_buffer("prior_scale", torch.ones(num_inputs, dtype=torch.float64))

    def forward(self, q: Float[Tensor, "*B d"], u: Float[Tensor, "*U m"]) -> Float[Tensor, "*B d"]:
        if self.kind == "constant":
            return multiply(self.weights[..., 0, :, :], u)
        y = (q - self.center) / self.scale
        basis = torch.cat([torch.ones_like(y[..., :1]), y], dim=-1)
        return multiply((basis[..., None, None] * self.weights).sum(-3), u)

    # ---- free parameters
    def parameter_vector(self) -> Float[Tensor, " n"]:
        return self.weights.detach().flatten()

    def with_vector(self, values: Float[Tensor, "*P n"]) -> InputMap:
        return replaced(self, weights=values.unflatten(-1, tuple(self.weights.shape[-3:])))

    def parameter_prior(self) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        spread = (torch.ones_like(self.weights.detach()) * self.prior_scale).clone()
        spread[1:] *= 0.3
        return torch.zeros(self.weights.numel(), dtype=spread.dtype), spread.flatten()


def interpolated_inputs(times_s: Float[Tensor, " T"], values: Float[Tensor, "T m"]) -> InputFunction:
    """Piecewise linear inputs from samples, held constant before the first and after the last.

    Raises: ValueError if the times do not increase or values are not finite.
    """
    steps = times_s[1:] - times_s[:-1]
    if len(times_s) > 1 and not bool((steps > 0).all()):
        row = int((steps <= 0).nonzero()[0]) + 1
        raise ValueError(
            f"Times of inputs must increase, but sample {row} ({float(times_s[row]):.6g} s) follows sample {row - 1} "
            f"({float(times_s[row - 1]):.6g} s).\n  Sort the samples by time and remove duplicates."
        )
    if not bool(torch.isfinite(values).all()):
        row = int((~torch.isfinite(values)).any(-1).nonzero()[0])
        raise ValueError(
            f"Inputs must be finite, but sample {row} is {values[row].tolist()}.\n  Fill or remove such samples."
        )
    knots, table = times_s.double().contiguous(), values.double()

    def inputs(time: Tensor) -> Tensor:
        if len(knots) == 1:
            return table[0].expand(*time.shape, -1)
        t = time.double().clamp(knots[0], knots[-1])
        right = torch.searchsorted(knots, t.contiguous()).clamp(1, len(knots) - 1)
        share = ((t - knots[right - 1]) / (knots[right] - knots[right - 1]))[..., None]
        return table[right - 1] + share * (table[right] - table[right - 1])

    return inputs
