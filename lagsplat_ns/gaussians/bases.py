"""Rigid motion bases of the picture plane as functions of the latent coordinates.

A basis p moves a canonical plane point c_i to R(theta_p) (c_i - o) + o + t_p. With d_i = c_i - o and its quarter turn
d_i^perp this is linear in the motion vector m = (cos theta_p, sin theta_p, t_p)_p of length 4 P:

    x_i(q) = o + sum_p W_ip (cos theta_p d_i + sin theta_p d_i^perp + t_p) = o + A_i m(q).

Everything that needs derivatives of positions (forces, the metric) therefore needs those of m(q) alone.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lagsplat_ns.gaussians.monomials import Monomials


def quarter_turn(points: Float[Tensor, "*B 2"]) -> Float[Tensor, "*B 2"]:
    """Plane vectors (x, z) turned by +90 degrees: (-z, x)."""
    return torch.stack([-points[..., 1], points[..., 0]], dim=-1)


def motion_vector(angles: Float[Tensor, "*B P"], translations: Float[Tensor, "*B P 2"]) -> Float[Tensor, "*B P4"]:
    """m = (cos theta_p, sin theta_p, t_p) for every basis, flattened to 4 P numbers."""
    parts = torch.cat([torch.cos(angles)[..., None], torch.sin(angles)[..., None], translations], dim=-1)
    return parts.flatten(-2)


def placement(
    canonical: Float[Tensor, "N 2"], origin: Float[Tensor, " 2"], skinning: Float[Tensor, "N P"]
) -> Float[Tensor, "N 2 P4"]:
    """The matrices A_i with x_i = origin + A_i m."""
    arm = canonical - origin
    columns = torch.stack([arm, quarter_turn(arm)], dim=-1)  # [N, 2, 2]
    unit = torch.eye(2, dtype=arm.dtype, device=arm.device).expand(arm.shape[0], 2, 2)
    block = torch.cat([columns, unit], dim=-1)  # [N, 2, 4]
    return (skinning[:, None, :, None] * block[:, :, None, :]).flatten(-2)


class MotionBases(nn.Module):
    """theta_p(q) and t_p(q): polynomials of q, or rotations about fixed pivots.

    With `pivots`, the angle is a polynomial of q and the translation follows exactly: t_p = (I - R_p)(pivot_p - o).
    Source: motion bases with soft skinning as in Shape of Motion, arXiv 2407.13764, section 3.2.
    """

    origin: Tensor
    has_pivots: Tensor

    def __init__(self, latent_dim: int, num_bases: int, degree: int, has_pivots: bool = False) -> None:
        super().__init__()
        self.num_bases = num_bases
        self.monomials = Monomials(latent_dim, degree)
        self.angle_coefficients = nn.Parameter(torch.zeros(self.monomials.num_terms, num_bases))
        self.translation_coefficients = nn.Parameter(torch.zeros(self.monomials.num_terms, num_bases, 2))
        self.pivots = nn.Parameter(torch.zeros(num_bases, 2))
        self.register_buffer("origin", torch.zeros(2))
        self.register_buffer("has_pivots", torch.tensor(has_pivots))

    @property
    def latent_dim(self) -> int:
        return self.monomials.latent_dim

    def _terms(self, translations: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        """Assemble one derivative order of m [*, 4 P]; with pivots t = b - cos b - sin b^perp, b = pivot - o."""
        if bool(self.has_pivots):
            arm = self.pivots - self.origin
            translations = -(cosines[..., None] * arm + sines[..., None] * quarter_turn(arm))
        return torch.cat([cosines[..., None], sines[..., None], translations], dim=-1).flatten(-2)

    def angles(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B P"]:
        """Rotation of every basis, radians."""
        return self.monomials(q) @ self.angle_coefficients

    def forward(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B P4"]:
        """The motion vector m(q)."""
        phi = self.monomials(q)
        angles = phi @ self.angle_coefficients
        if bool(self.has_pivots):
            cosines, sines = torch.cos(angles), torch.sin(angles)
            arm = self.pivots - self.origin
            translations = arm - (cosines[..., None] * arm + sines[..., None] * quarter_turn(arm))
        else:
            translations = torch.einsum("...k,kpc->...pc", phi, self.translation_coefficients)
        return motion_vector(angles, translations)

    def jacobian(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B P4 d"]:
        """dm/dq."""
        dphi = self.monomials.jacobian(q).transpose(-1, -2)  # [*, d, K]
        angles = (self.monomials(q) @ self.angle_coefficients)[..., None, :]  # [*, 1, P]
        slope = dphi @ self.angle_coefficients  # [*, d, P]
        cosines, sines = -torch.sin(angles) * slope, torch.cos(angles) * slope
        translations = torch.einsum("...dk,kpc->...dpc", dphi, self.translation_coefficients)
        return self._terms(translations, cosines, sines).transpose(-1, -2)

    def curvature(self, q: Float[Tensor, "*B d"], qd: Float[Tensor, "*B d"]) -> Float[Tensor, "*B P4"]:
        """d2m/dq2 contracted twice with qd: the part of m'' that is not dm/dq q''."""
        phi, dphi = self.monomials(q), (self.monomials.jacobian(q) * qd[..., None, :]).sum(-1)
        ddphi = torch.einsum("...kij,...i,...j->...k", self.monomials.hessian(q).to(q.dtype), qd, qd)
        angles, rate, accel = (basis @ self.angle_coefficients for basis in (phi, dphi, ddphi))
        cosines = -torch.cos(angles) * rate**2 - torch.sin(angles) * accel
        sines = -torch.sin(angles) * rate**2 + torch.cos(angles) * accel
        translations = torch.einsum("...k,kpc->...pc", ddphi, self.translation_coefficients)
        return self._terms(translations, cosines, sines)


def motion_gram(placements: Float[Tensor, "N 2 P4"], weights: Float[Tensor, " N"]) -> Float[Tensor, "P4 P4"]:
    """G = sum_i w_i A_i^T A_i with the weights scaled to sum to one."""
    share = weights / weights.sum()
    return torch.einsum("n,nci,ncj->ij", share, placements, placements)
