"""Metrics: the inertia M(q) of the latent coordinates and the Coriolis force that belongs to it.

With T = 1/2 q'^T M(q) q', Lagrange's equations give M q'' + c(q, q') with
c_i = sum_jk (dM_ij/dq_k - 1/2 dM_jk/dq_i) q'_j q'_k.
"""

from __future__ import annotations

from typing import no_type_check

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lagsplat_ns.dynamics.compiled.terms import MetricTerms
from lagsplat_ns.dynamics.parts import lower_triangle, multiply, replaced
from lagsplat_ns.dynamics.structure import Structure, structure_of

__all__ = ["ConstantMetric", "LearnedMetric"]


class ConstantMetric(nn.Module):
    """M(q) = M, positive definite: what arc length gives for one degree of freedom.

    Raises: ValueError if M is not a symmetric positive definite matrix.
    """

    mass: Tensor

    def __init__(self, mass: Float[Tensor, "d d"]) -> None:
        super().__init__()
        asymmetry = float((mass - mass.T).abs().max())
        if asymmetry > 1e-9 * float(mass.abs().max()) or float(torch.linalg.eigvalsh(mass)[0]) <= 0:
            raise ValueError(
                f"A mass matrix must be symmetric and positive definite, but got {mass.tolist()}.\n"
                "  Pass `0.5 * (mass + mass.T)`, and check that no coordinate is without inertia."
            )
        self.register_buffer("mass", mass.clone())

    @property
    def latent_dim(self) -> int:
        return self.mass.shape[-1]

    def kernel_terms(self) -> MetricTerms:
        """The inertia as the compiled dynamics read it."""
        return MetricTerms(mass=self.mass)

    @no_type_check  # in the innermost loop
    def mass_matrix(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B d d"]:
        return self.mass.to(q.dtype).expand(*q.shape[:-1], -1, -1)

    @no_type_check  # in the innermost loop
    def coriolis_force(self, q: Float[Tensor, "*B d"], qd: Float[Tensor, "*B d"]) -> Float[Tensor, "*B d"]:
        return torch.zeros_like(q)


_LAYERS = ("first_weight", "first_bias", "second_weight", "second_bias", "last_weight", "last_bias")


class LearnedMetric(nn.Module):
    """M(q) = L(q) L(q)^T + epsilon I, L from a small network with a constant tangent far from the data.

    The derivative of L is propagated in closed form, layer by layer, so that the Coriolis force needs no autograd. All
    weights are free parameters, held near their random start (the same every time) by a prior: M starts near I.
    structure: which coordinates turn and belong together, where something else has found that out.
    Source: LaGSplat, arXiv 2608.16324, learned inertia; Lutter et al., "Deep Lagrangian Networks", eq. 8.
    Law: tests/laws/test_dynamics.py, Euler-Lagrange residual.
    """

    start: Tensor
    first_weight: Tensor
    first_bias: Tensor
    second_weight: Tensor
    second_bias: Tensor
    last_weight: Tensor
    last_bias: Tensor

    def __init__(
        self, latent_dim: int, width: int = 8, epsilon: float = 1e-2, structure: Structure | None = None
    ) -> None:
        super().__init__()
        self._structure = structure_of(None, latent_dim) if structure is None else structure
        self.latent_dim, self.epsilon, self.width = latent_dim, epsilon, width
        generator, entries = torch.Generator().manual_seed(0), latent_dim * (latent_dim + 1) // 2
        sizes = ((width, latent_dim), (width,), (width, width), (width,), (entries, width), (entries,))
        for name, size in zip(_LAYERS, sizes):
            bound = (latent_dim if name.startswith("first") else width) ** -0.5
            values = bound * (2 * torch.rand(size, generator=generator) - 1)
            self.register_parameter(name, nn.Parameter(0.1 * values if name == "last_weight" else values))
        with torch.no_grad():
            rows, columns = torch.tril_indices(latent_dim, latent_dim)
            self.last_bias.copy_((rows == columns).to(self.last_bias.dtype))
        self.register_buffer("start", self.parameter_vector(), persistent=False)
        self._latest: tuple[Tensor, int, tuple[Tensor, Tensor]] | None = None

    @no_type_check  # in the innermost loop
    def _factor(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """L [*, d, d] and dL/dq_k [*, d, d, d] (k last but two); remembered for the latest q, which is asked twice."""
        if torch.is_grad_enabled():
            return self._compute_factor(q)
        version = sum(getattr(self, name)._version for name in _LAYERS)
        if self._latest is None or self._latest[0] is not q or self._latest[1] != version:
            self._latest = (q, version, self._compute_factor(q))
        return self._latest[2]

    @no_type_check  # in the innermost loop
    def _compute_factor(self, q: Tensor) -> tuple[Tensor, Tensor]:
        h, slope = q, torch.eye(self.latent_dim, dtype=q.dtype, device=q.device)
        for weight, bias in ((self.first_weight, self.first_bias), (self.second_weight, self.second_bias)):
            h = torch.tanh(multiply(weight, h) + bias)
            slope = (slope @ weight.transpose(-1, -2)) * (1 - h**2)[..., None, :]  # [*, d, width]
        entries = multiply(self.last_weight, h) + self.last_bias
        slopes = slope @ self.last_weight.transpose(-1, -2)
        return lower_triangle(entries, self.latent_dim), lower_triangle(slopes, self.latent_dim)

    def structure(self) -> Structure:
        """Joints, groups and periods of the coordinates, as given."""
        return self._structure

    # ---- free parameters
    def parameter_vector(self) -> Float[Tensor, " n"]:
        return torch.cat([getattr(self, name).detach().flatten() for name in _LAYERS])

    def with_vector(self, values: Float[Tensor, "*P n"]) -> LearnedMetric:
        moved, begin = {}, 0
        for name in _LAYERS:
            size = getattr(self, name).shape
            moved[name] = values[..., begin : begin + size.numel()].unflatten(-1, tuple(size))
            begin += size.numel()
        result = replaced(self, **moved)
        result._latest = None
        return result

    def parameter_prior(self) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        spread = [torch.full_like(getattr(self, name).detach(), 0.5).flatten() for name in _LAYERS]
        return self.start, torch.cat(spread)

    @no_type_check  # in the innermost loop
    def mass_matrix(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B d d"]:
        factor, _ = self._factor(q)
        unit = torch.eye(self.latent_dim, dtype=q.dtype, device=q.device)
        return factor @ factor.transpose(-1, -2) + self.epsilon * unit

    @no_type_check  # in the innermost loop
    def coriolis_force(self, q: Float[Tensor, "*B d"], qd: Float[Tensor, "*B d"]) -> Float[Tensor, "*B d"]:
        factor, slopes = self._factor(q)
        half = slopes @ factor.transpose(-1, -2)[..., None, :, :]  # [*, k, i, j]
        derivative = half + half.transpose(-1, -2)  # dM/dq_k
        rate = multiply(derivative, qd[..., None, :])  # [*, k, i]: sum_j dM_ij/dq_k q'_j
        return multiply(rate.transpose(-1, -2), qd) - 0.5 * multiply(rate, qd)
