"""Records shared by every part of the package."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class State:
    """Generalized coordinates and their rates: a point of the phase space.

    q: coordinates [*batch, d], dimensionless. qd: rates [*batch, d], 1/s.
    """

    q: Float[Tensor, "*batch d"]
    qd: Float[Tensor, "*batch d"]


@dataclass(frozen=True)
class Gaussians:
    """A posed set of Gaussian primitives, scales and opacities stored before their activations.

    means [N, 3] in scene units; quats_wxyz [N, 4], normalized when used; log_scales [N, 3] natural logarithm of the
    standard deviations; opacity_logits [N]; colors [N, 3] in [0, 1].
    """

    means: Float[Tensor, "N 3"]
    quats_wxyz: Float[Tensor, "N 4"]
    log_scales: Float[Tensor, "N 3"]
    opacity_logits: Float[Tensor, " N"]
    colors: Float[Tensor, "N 3"]

    @property
    def num_gaussians(self) -> int:
        return self.means.shape[0]
