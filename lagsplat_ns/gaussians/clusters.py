"""Clusters of primitives that share a density: a few along a rigid part, one per few links of a thing that bends."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lagsplat_ns.gaussians.bases import placement
from lagsplat_ns.gaussians.metric import GeometricMetric

__all__ = ["assign_clusters", "clustered_metric", "num_clusters"]

_MOST_RIGID_PARTS = 6
_CHAIN_CLUSTERS = 6
_CHAIN_CORRELATION = 0.7


def num_clusters(latent_dim: int, num_parts: int) -> int:
    """How many clusters a thing has: fixed by its coordinates and parts, so that shapes are known before it is filmed.

    One turning part has one, since its density is a mere scale.
    """
    if num_parts == 1 and latent_dim == 1:
        return 1
    if num_parts <= 3:
        return 4 * num_parts
    return 2 * num_parts if num_parts <= _MOST_RIGID_PARTS else _CHAIN_CLUSTERS


def assign_clusters(
    canonical: Float[Tensor, "N 2"], weights: Float[Tensor, " N"], skinning: Float[Tensor, "N P"], count: int
) -> Int[Tensor, " N"]:
    """The cluster of every primitive: pieces of equal length along the part that carries it, or runs of parts."""
    num_parts, owner = skinning.shape[1], skinning.argmax(1)
    if count < num_parts:
        return owner * count // num_parts
    pieces = count // num_parts
    result = owner * pieces
    for part in range(num_parts):
        mine = (owner == part).nonzero()[:, 0]
        if len(mine) < 2 or pieces == 1:
            continue
        share = weights[mine] / weights[mine].sum().clamp(min=1e-30)
        arm = canonical[mine] - (share[:, None] * canonical[mine]).sum(0)
        _, vectors = torch.linalg.eigh((share[:, None] * arm).T @ arm)
        along = arm @ vectors[:, -1]
        low, high = along.quantile(0.02), along.quantile(0.98)
        place = (along - low) / (high - low).clamp(min=1e-12)
        result[mine] += (place * pieces).long().clamp(0, pieces - 1)
    return result


def clustered_metric(
    bases: nn.Module,
    canonical: Float[Tensor, "N 2"],
    weights: Float[Tensor, " N"],
    skinning: Float[Tensor, "N P"],
    count: int | None = None,
) -> GeometricMetric:
    """The metric of primitives at canonical points of the plane, with one density per cluster.

    weights: opacity times area, of any scale; count: number of clusters, by default `num_clusters`.
    """
    with torch.no_grad():
        num_parts = skinning.shape[1]
        count = num_clusters(int(bases.latent_dim), num_parts) if count is None else count  # type: ignore[arg-type]
        share = weights / weights.sum()
        cluster = assign_clusters(canonical, weights, skinning, count)
        placements = placement(canonical, bases.origin, skinning)  # type: ignore[arg-type]
        grams = placements.new_zeros(count, placements.shape[-1], placements.shape[-1])
        moments = placements.new_zeros(count, 2, placements.shape[-1])
        shares = placements.new_zeros(count).index_add_(0, cluster, share)
        for c in range(count):
            mine = cluster == c
            own = placements[mine]
            grams[c] = torch.einsum("n,nci,ncj->ij", share[mine], own, own)
            moments[c] = torch.einsum("n,nkj->kj", share[mine], own)
        metric = GeometricMetric(bases, grams, moments, shares)
        if count < num_parts:
            order = torch.arange(count)
            correlation = _CHAIN_CORRELATION ** (order[:, None] - order).abs().to(grams.dtype)
            metric.mixing.copy_(torch.linalg.cholesky(correlation))
    return metric
