"""Colors that depend on the direction of view."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

_DEGREE_0 = 0.28209479177387814
MAX_DEGREE = 4


def spherical_harmonics_basis(degree: int, directions: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch K"]:
    """The (degree + 1)² real spherical harmonics of directions of any length, in gsplat's order and signs.

    Source: Sloan, Efficient Spherical Harmonic Evaluation, JCGT 2013; gsplat 1.4.0, `spherical_harmonics.cuh`.
    """
    x, y, z = F.normalize(directions, dim=-1).unbind(-1)  # [*batch]
    basis = [torch.full_like(x, _DEGREE_0)]
    if degree >= 1:
        basis += [-0.48860251190292 * y, 0.48860251190292 * z, -0.48860251190292 * x]
    if degree >= 2:
        zz = z * z
        cos2, sin2 = x * x - y * y, 2 * x * y
        edge2 = -1.092548430592079 * z
        pole2 = 0.9461746957575601 * zz - 0.3153915652525201
        basis += [0.5462742152960395 * sin2, edge2 * y, pole2, edge2 * x, 0.5462742152960395 * cos2]
    if degree >= 3:
        cos3, sin3 = x * cos2 - y * sin2, x * sin2 + y * cos2
        edge3, face3 = -2.285228997322329 * zz + 0.4570457994644658, 1.445305721320277 * z
        pole3 = z * (1.865881662950577 * zz - 1.119528997770346)
        basis += [-0.5900435899266435 * sin3, face3 * sin2, edge3 * y, pole3, edge3 * x, face3 * cos2]
        basis += [-0.5900435899266435 * cos3]
    if degree >= 4:
        cos4, sin4 = x * cos3 - y * sin3, x * sin3 + y * cos3
        edge4 = z * (-4.683325804901025 * zz + 2.007139630671868)
        face4, side4 = 3.31161143515146 * zz - 0.47308734787878, -1.770130769779931 * z
        pole4 = 1.984313483298443 * z * pole3 - 1.006230589874905 * pole2
        basis += [0.6258357354491763 * sin4, side4 * sin3, face4 * sin2, edge4 * y, pole4, edge4 * x, face4 * cos2]
        basis += [side4 * cos3, 0.6258357354491763 * cos4]
    return torch.stack(basis, -1)


def colors_of_harmonics(
    degree: int,
    means: Float[Tensor, "*sets N 3"],
    coefficients: Float[Tensor, "*colors N K 3"],
    viewmats: Float[Tensor, "C 4 4"],
) -> Float[Tensor, "C_or_1 N 3"]:
    """Colors max(0, basis . coefficients + 1/2) of Gaussians as cameras see them; one row when no camera matters."""
    coefficients = coefficients if coefficients.dim() == 4 else coefficients[None]  # [1 or C, N, K, 3]
    if degree == 0:
        return torch.clamp_min(_DEGREE_0 * coefficients[:, :, 0] + 0.5, 0.0)  # [1 or C, N, 3]
    means = means if means.dim() == 3 else means[None]  # [1 or C, N, 3]
    rotations, translations = viewmats[:, :3, :3], viewmats[:, :3, 3]
    positions = -torch.linalg.solve(rotations, translations)  # [C, 3]: where cameras are
    basis = spherical_harmonics_basis(degree, means - positions[:, None])  # [C, N, K]
    used = coefficients[:, :, : basis.shape[-1]]  # [1 or C, N, K, 3]
    return torch.clamp_min((basis[..., None] * used).sum(-2) + 0.5, 0.0)  # [C, N, 3]
