"""The conditional decoder: Gaussians in picture plane x latent space, sliced at q."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class ConditionalDecoder(nn.Module):
    """Primitives that move linearly and fade with q.

    mu_i(q) = mu_i + J_i (q - q_i), opacity gate exp(-1/2 |L_i^T (q - q_i)|^2) with the latent precision L_i L_i^T.
    The nonlinearity of the motion comes from primitives that fade in and out as q moves.
    Source: LaGSplat, arXiv 2608.16324, Gaussians conditioned on the latent state (Schur complement).
    """

    def __init__(self, num_moving: int, latent_dim: int) -> None:
        super().__init__()
        self.plane_means = nn.Parameter(torch.zeros(num_moving, 2))
        self.jacobian = nn.Parameter(torch.zeros(num_moving, 2, latent_dim))
        self.latent_means = nn.Parameter(torch.zeros(num_moving, latent_dim))
        self.latent_precision_factors = nn.Parameter(torch.eye(latent_dim).repeat(num_moving, 1, 1))

    def forward(self, q: Float[Tensor, "*B d"]) -> tuple[Float[Tensor, "*B M 2"], Float[Tensor, "*B M"]]:
        """Plane positions and opacity gates at q."""
        offset = q[..., None, :] - self.latent_means  # [*B, M, d]
        plane = self.plane_means + torch.einsum("mcd,...md->...mc", self.jacobian, offset)
        whitened = torch.einsum("mde,...md->...me", self.latent_precision_factors, offset)
        return plane, torch.exp(-0.5 * whitened.square().sum(-1))
