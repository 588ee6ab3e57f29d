"""A start for the conditional decoder: slices of the tracks that the motion bases found."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.gaussians.scene import LatentScene


@torch.no_grad()
def start_conditional(scene: LatentScene, path: Float[Tensor, "T d"], seed: int = 0) -> None:
    """Give every moving primitive a place on the path where it is most visible, and the tracks' slope there.

    Gates are half as wide as the path's spread, so that about half of the primitives show at any q.
    """
    decoder = scene.conditional
    if decoder is None:
        raise ValueError("the scene has no conditional decoder")
    generator = torch.Generator().manual_seed(seed)
    chosen = path[torch.randint(len(path), (scene.num_moving,), generator=generator).to(path.device)]
    motions, slopes = scene.bases(chosen), scene.bases.jacobian(chosen)
    placements = scene.placements()
    decoder.latent_means.copy_(chosen)
    decoder.plane_means.copy_(torch.einsum("mcj,mj->mc", placements, motions) + scene.bases.origin)
    decoder.jacobian.copy_(torch.einsum("mcj,mjd->mcd", placements, slopes))
    width = 0.5 * path.std(0).clamp(min=1e-6)
    decoder.latent_precision_factors.copy_(torch.diag(1.0 / width).expand_as(decoder.latent_precision_factors))
