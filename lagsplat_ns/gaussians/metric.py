"""The inertia and the weight that moving Gaussians imply, with densities and gravity free to be identified."""

from __future__ import annotations

from typing import no_type_check

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lagsplat_ns.dynamics.compiled.terms import MetricTerms
from lagsplat_ns.dynamics.parts import replaced
from lagsplat_ns.dynamics.structure import TILT, Structure
from lagsplat_ns.gaussians.articulated import ArticulatedBases
from lagsplat_ns.gaussians.bases import MotionBases
from lagsplat_ns.gaussians.joints import structure_of_bases
from lagsplat_ns.gaussians.motion_terms import motion_terms

__all__ = ["GeometricMetric"]


class GeometricMetric(nn.Module):
    """M(q) = D(q)^T G D(q), and V_g(q) = -w . m(q): what moving Gaussians weigh.

    Primitives fall into clusters c with densities rho_c. Positions are linear in the motion vector m, so that

        G = sum_c rho_c G_c, G_c = sum_(i in c) w_i A_i^T A_i,   w = sum_c rho_c B_c^T g, B_c = sum_(i in c) w_i A_i

    are constant [4 P, 4 P] and [4 P]; D = dm/dq. With kinetic energy 1/2 m'^T G m', Lagrange's equations give the
    Coriolis force D^T G (d2m/dq2)[q', q']. Inertia and weight share the densities rho = exp(l) / (s . exp(l)), s_c the
    cluster's share of the picture: the total mass is 1, which fixes the gauge.

    gram: G_c [C, 4 P, 4 P] or their sum [4 P, 4 P]; moment: B_c [C, 2, 4 P]; shares: s_c [C].
    Free parameters: z with l = mixing z and the prior N(0, 1) where densities are free; then gravity (right, up)
    where there is any. `mixing` [C, C] is a root of the prior's covariance of log densities.
    Source: LaGSplat, arXiv 2608.16324, induced inertia M(q) = m sum_i w_i J_i^T J_i + eps I.
    Law: tests/laws/test_geometric_metric.py.
    """

    grams: Tensor
    moments: Tensor
    shares: Tensor
    mixing: Tensor
    has_gravity_: Tensor
    has_densities: Tensor
    prior_gravity: Tensor

    def __init__(
        self,
        bases: nn.Module,
        gram: Float[Tensor, "*C P4 P4"],
        moment: Float[Tensor, "C 2 P4"] | None = None,
        shares: Float[Tensor, " C"] | None = None,
        epsilon: float = 1e-8,
    ) -> None:
        super().__init__()
        grams = gram if gram.dim() == 3 else gram[None]
        clusters, size = grams.shape[0], grams.shape[-1]
        self.bases, self.epsilon = bases, epsilon
        self.register_buffer("grams", grams)
        self.register_buffer("moments", grams.new_zeros(clusters, 2, size) if moment is None else moment)
        self.register_buffer("shares", grams.new_full((clusters,), 1 / clusters) if shares is None else shares)
        self.register_buffer("mixing", torch.eye(clusters, dtype=grams.dtype))
        self.density_coordinates = nn.Parameter(grams.new_zeros(clusters))
        self.gravity = nn.Parameter(grams.new_zeros(2))
        self.register_buffer("has_gravity_", torch.tensor(False))
        self.register_buffer("has_densities", torch.tensor(False))
        self.register_buffer("prior_gravity", grams.new_ones(()))
        self._latest: tuple[Tensor, Tensor] | None = None
        self._fixed: tuple[Tensor, Tensor] | None = None
        self._constant: bool | None = None

    @property
    def latent_dim(self) -> int:
        return int(self.bases.latent_dim)  # type: ignore[arg-type]

    @property
    def num_clusters(self) -> int:
        return self.grams.shape[0]

    @property
    def has_gravity(self) -> bool:
        return bool(self.has_gravity_)

    @property
    def can_weigh(self) -> bool:
        """Whether first moments of the mass are known."""
        return bool((self.moments != 0).any())

    def structure(self) -> Structure:
        """Joints, groups and periods of the coordinates."""
        return structure_of_bases(self.bases)

    def admit(self, gravity: bool, densities: bool) -> None:
        """Starts over with or without gravity and free densities; one cluster has no density to be free."""
        self.has_gravity_.fill_(gravity)
        self.has_densities.fill_(densities and self.num_clusters > 1)
        self._fixed = None
        with torch.no_grad():
            self.density_coordinates.zero_()
            self.gravity.zero_()

    # ---- what the densities make of the clusters
    def densities(self) -> Float[Tensor, "*P C"]:
        """rho_c, total mass 1."""
        raw = torch.exp(self.density_coordinates @ self.mixing.T)
        return raw / (raw * self.shares).sum(-1, keepdim=True)

    @no_type_check  # in the innermost loop
    def weighted(self) -> tuple[Tensor, Tensor]:
        """G [*P, 4 P, 4 P] and w [*P, 4 P]."""
        if self._fixed is not None:
            return self._fixed
        densities = self.densities()
        gram = torch.einsum("...c,cij->...ij", densities, self.grams)
        return gram, torch.einsum("...c,ckj,...k->...j", densities, self.moments, self.gravity)

    @property
    def gram(self) -> Float[Tensor, "*P P4 P4"]:
        """G with the present densities."""
        return self.weighted()[0]

    @property
    def is_constant(self) -> bool:
        """Whether inertia is the same everywhere: one part that turns about a pivot, or slides, by a multiple of q."""
        if self._constant is None:
            self._constant = self.num_clusters == 1 and _has_constant_inertia(self.bases)
        return self._constant

    # ---- inertia
    @no_type_check  # in the innermost loop
    def _slope(self, q: Tensor) -> Tensor:
        """dm/dq, remembered for the latest q: inertia, Coriolis force and weight are asked for one after the other."""
        if torch.is_grad_enabled():
            return self.bases.jacobian(q)
        if self._latest is None or self._latest[0] is not q:
            self._latest = (q, self.bases.jacobian(q))
        return self._latest[1]

    def mass_matrix(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*C d d"]:
        if self.is_constant:
            return self._mass(torch.zeros_like(q[(0,) * (q.dim() - 1)])).expand(*q.shape[:-1], -1, -1)
        return self._mass(q)

    @no_type_check  # in the innermost loop
    def _mass(self, q: Tensor) -> Tensor:
        slope = self._slope(q)
        unit = torch.eye(self.latent_dim, dtype=q.dtype, device=q.device)
        return slope.transpose(-1, -2) @ (self.weighted()[0] @ slope) + self.epsilon * unit

    @no_type_check  # in the innermost loop
    def coriolis_force(self, q: Float[Tensor, "*B d"], qd: Float[Tensor, "*B d"]) -> Float[Tensor, "*C d"]:
        if self.is_constant:
            return torch.zeros_like(q)
        bent = (self.weighted()[0] @ self.bases.curvature(q, qd)[..., None])[..., 0]
        return (bent[..., None, :] @ self._slope(q))[..., 0, :]

    def kernel_terms(self) -> MetricTerms | None:
        """Inertia and weight as the compiled dynamics read them."""
        motion, (gram, weight) = motion_terms(self.bases), self.weighted()
        if motion is None:
            return None
        still = gram.new_zeros(self.latent_dim)
        mass = self._mass(still) if self.is_constant else None
        return MetricTerms(motion, gram, weight if self.has_gravity else None, self.epsilon, mass)

    # ---- weight
    @no_type_check
    def gravity_energy(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*C"]:
        """V_g = -w . m(q)."""
        return -(self.weighted()[1] * self.bases(q)).sum(-1)

    def gravity_gradient(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*C d"]:
        """dV_g/dq."""
        return -(self.weighted()[1][..., None, :] @ self._slope(q))[..., 0, :]

    def gravity_columns(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*C 2 d"]:
        """dV_g/dq per unit of gravity to the right and up: the columns of a regression of gravity."""
        moment = torch.einsum("...c,ckj->...kj", self.densities(), self.moments)
        return -moment @ self._slope(q)

    # ---- free parameters
    def parameter_vector(self) -> Float[Tensor, " n"]:
        pieces = [self.density_coordinates.detach()] if bool(self.has_densities) else []
        pieces += [self.gravity.detach()] if self.has_gravity else []
        return torch.cat(pieces) if pieces else self.gravity.new_zeros(0)

    def with_vector(self, values: Float[Tensor, "*P n"]) -> GeometricMetric:
        moved: dict[str, Tensor] = {}
        if bool(self.has_densities):
            moved["density_coordinates"] = values[..., : self.num_clusters]
        if self.has_gravity:
            moved["gravity"] = values[..., -2:]
        result = replaced(self, **moved)
        result._latest = result._fixed = None
        result._fixed = result.weighted()
        return result

    def parameter_prior(self) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        spread = [torch.ones_like(self.density_coordinates.detach())] if bool(self.has_densities) else []
        if self.has_gravity:
            spread.append(self.prior_gravity * self.gravity.new_tensor([TILT, 3.0]))
        joined = torch.cat(spread) if spread else self.gravity.new_zeros(0)
        return torch.zeros_like(joined), joined


def _has_constant_inertia(bases: nn.Module) -> bool:
    if isinstance(bases, MotionBases):
        return bases.num_bases == 1 and bool(bases.has_pivots) and bases.monomials.degree == 1
    if isinstance(bases, ArticulatedBases):
        is_alone = bases.num_bases == 1 and bases.latent_dim == 1
        return is_alone and (bool((bases.slide_rows == 0).all()) or bool((bases.angle_rows == 0).all()))
    return False
