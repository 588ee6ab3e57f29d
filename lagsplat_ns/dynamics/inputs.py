"""Measured inputs: how pressures, torques or voltages act on the coordinates, and their values between samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lagsplat_ns.dynamics.parts import multiply, replaced

__all__ = ["InputFunction", "InputKind", "InputMap", "interpolated_inputs"]

InputFunction = Callable[[Tensor], Tensor]
"""Inputs at times: seconds [*] to values [*, m]."""


InputKind = Literal["constant", "potential", "general"]
_KINDS: tuple[InputKind, ...] = ("constant", "potential", "general")


class InputMap(nn.Module):
    """The generalized force b(q)^T u of m inputs: b = b_0 + sum_k y_k b_k, y the scaled coordinates.

    `constant`: b = b_0, as of a torque at a joint or a force along a slide, in their own coordinates. `potential`:
    every column of b is the gradient of a quadratic, so that an input held still does no work around a loop (a
    pressure, a spring that is pulled). `general`: any b_k. Free parameters: b_0 [d, m], then the others of the kind.
    """

    center: Tensor
    scale: Tensor
    prior_scale: Tensor
    kind_index: Tensor

    def __init__(self, latent_dim: int, num_inputs: int, kind: InputKind = "constant") -> None:
        super().__init__()
        self.latent_dim, self.num_inputs = latent_dim, num_inputs
        self.weights = nn.Parameter(torch.zeros(1 + latent_dim, latent_dim, num_inputs, dtype=torch.float64))
        self.register_buffer("center", torch.zeros(latent_dim, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(latent_dim, dtype=torch.float64))
        self.register_buffer("prior_scale", torch.ones(num_inputs, dtype=torch.float64))
        self.register_buffer("kind_index", torch.tensor(_KINDS.index(kind)))

    @property
    def kind(self) -> InputKind:
        return _KINDS[int(self.kind_index)]

    def become(self, kind: InputKind) -> None:
        """Changes the kind; what the new one does not have becomes zero."""
        self.kind_index.fill_(_KINDS.index(kind))
        with torch.no_grad():
            self.weights.copy_(self.with_vector(self.parameter_vector()).weights)

    def forward(self, q: Float[Tensor, "*B d"], u: Float[Tensor, "*U m"]) -> Float[Tensor, "*C d"]:
        if self.kind == "constant":
            return multiply(self.weights[..., 0, :, :], u)
        y = (q - self.center) / self.scale
        basis = torch.cat([torch.ones_like(y[..., :1]), y], dim=-1)
        return multiply((basis[..., None, None] * self.weights).sum(-3), u)

    # ---- free parameters
    def _pairs(self) -> Tensor:
        """[K, d, d]: what each free number of the blocks b_1, b_2, ... adds to their entries [k, i]."""
        d = self.latent_dim
        if self.kind == "general":
            return torch.eye(d * d, dtype=self.weights.dtype).unflatten(1, (d, d))
        rows, columns = torch.tril_indices(d, d)
        pairs = torch.zeros(len(rows), d, d, dtype=self.weights.dtype)
        index, size = torch.arange(len(rows)), (self.scale[rows] * self.scale[columns]).sqrt()
        # db_i/dq_k = b_k,i / scale_k is symmetric
        pairs[index, rows, columns] = self.scale[rows] / size
        pairs[index, columns, rows] = self.scale[columns] / size
        return pairs

    def parameter_vector(self) -> Float[Tensor, " n"]:
        weights = self.weights.detach()
        if self.kind == "constant":
            return weights[0].flatten()
        pairs = self._pairs()
        inverse = torch.linalg.pinv(pairs.flatten(1).T)
        return torch.cat([weights[0].flatten(), (inverse @ weights[1:].flatten(0, 1)).flatten()])

    def with_vector(self, values: Float[Tensor, "*P n"]) -> InputMap:
        d, m, batch = self.latent_dim, self.num_inputs, values.shape[:-1]
        first = values[..., : d * m].unflatten(-1, (1, d, m))
        if self.kind == "constant":
            return replaced(self, weights=torch.cat([first, values.new_zeros(*batch, d, d, m)], dim=-3))
        free = values[..., d * m :].unflatten(-1, (-1, m))
        rest = torch.einsum("...nm,nki->...kim", free, self._pairs())
        return replaced(self, weights=torch.cat([first, rest], dim=-3))

    def parameter_prior(self) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        d = self.latent_dim
        blocks = {"constant": 0, "potential": d * (d + 1) // 2, "general": d * d}[self.kind]
        size = torch.cat([self.prior_scale.new_ones(d), self.prior_scale.new_full((blocks,), 0.3)])
        spread = (size[:, None] * self.prior_scale).flatten()
        return torch.zeros_like(spread), spread


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
