"""A mechanism: the terms of M(q) q'' + c(q, q') + grad V(q) + C(q, q') q' = tau + b(q)^T u, each under its own name."""

from __future__ import annotations

import copy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lagsplat_ns.dynamics.damping import RayleighDamping
from lagsplat_ns.dynamics.inputs import InputMap
from lagsplat_ns.dynamics.parts import HasFreeParameters, Metric, multiply
from lagsplat_ns.dynamics.potential import PolynomialPotential
from lagsplat_ns.dynamics.structure import HasGravity

__all__ = ["Mechanism"]


class Mechanism(nn.Module):
    """A dissipative Lagrangian system with d degrees of freedom and m measured inputs.

    metric: module with mass_matrix(q), coriolis_force(q, qd), and gravity where it knows what weighs (`HasGravity`);
    potential: module V(q) with gradient(q), all but that gravity; damping: module C(qd, M); inputs: module b(q)^T u or
    None. q is dimensionless, time in seconds; the unit of energy is a gauge.

    Source: LaGSplat, arXiv 2608.16324, dissipative Euler-Lagrange equation.
    Law: tests/laws/test_dynamics.py.
    """

    metric: Any
    potential: Any
    damping: Any
    inputs: Any

    def __init__(
        self, metric: nn.Module, potential: nn.Module, damping: nn.Module, inputs: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.metric, self.potential, self.damping, self.inputs = metric, potential, damping, inputs
        self.potential_scale = self.damping_scale = self.mass_scale = 1.0

    @classmethod
    def polynomial(cls, metric: nn.Module, latent_dim: int, degree: int = 8, num_inputs: int = 0) -> Mechanism:
        """A mechanism of default parts, whose tensors have shapes that depend on these numbers alone."""
        inputs = InputMap(latent_dim, num_inputs) if num_inputs else None
        return cls(metric, PolynomialPotential(latent_dim, degree), RayleighDamping(latent_dim), inputs)

    @property
    def latent_dim(self) -> int:
        return int(self.potential.latent_dim)

    @property
    def num_inputs(self) -> int:
        return int(self.inputs.num_inputs) if self.inputs is not None else 0

    # ---- the terms
    def mass_matrix(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B d d"]:
        assert isinstance(self.metric, Metric)
        mass = self.metric.mass_matrix(q)
        return mass if self.mass_scale == 1.0 else self.mass_scale * mass

    def coriolis_force(self, q: Float[Tensor, "*B d"], qd: Float[Tensor, "*B d"]) -> Float[Tensor, "*B d"]:
        """c(q, q'), on the left side of the equation."""
        assert isinstance(self.metric, Metric)
        force = self.metric.coriolis_force(q, qd)
        return force if self.mass_scale == 1.0 else self.mass_scale * force

    @property
    def has_gravity(self) -> bool:
        """Whether the metric's mass weighs something."""
        return isinstance(self.metric, HasGravity) and self.metric.has_gravity

    def potential_energy(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B"]:
        """V(q), gravity included."""
        value = self.potential(q)
        if self.has_gravity:
            value = value + self.metric.gravity_energy(q)
        return self.potential_scale * value

    def conservative_force(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B d"]:
        """-grad V(q), gravity included."""
        gradient = self.potential.gradient(q)
        if self.has_gravity:
            gradient = gradient + self.metric.gravity_gradient(q)
        return -self.potential_scale * gradient

    def potential_hessian(self, q: Float[Tensor, " d"]) -> Float[Tensor, "d d"]:
        """Second derivative of V at one point: the stiffness of small motions about a rest state."""
        with torch.enable_grad():
            slope = torch.autograd.functional.jacobian(self.conservative_force, q.detach())
        assert isinstance(slope, Tensor)
        return -0.5 * (slope + slope.T)

    def damping_matrix(
        self,
        q: Float[Tensor, "*B d"],
        qd: Float[Tensor, "*B d"] | None = None,
        mass: Float[Tensor, "*B d d"] | None = None,
    ) -> Float[Tensor, "*B d d"]:
        """C(q, q'), positive definite; at rest without qd. `mass` saves evaluating M(q) again."""
        qd = torch.zeros_like(q) if qd is None else qd
        mass = self.mass_matrix(q) if mass is None else mass
        # Damping belongs to the mass that was identified, not to an edited one.
        damping = self.damping(qd, mass if self.mass_scale == 1.0 else mass / self.mass_scale)
        return damping if self.damping_scale == 1.0 else self.damping_scale * damping

    def dissipative_force(self, q: Float[Tensor, "*B d"], qd: Float[Tensor, "*B d"]) -> Float[Tensor, "*B d"]:
        """-C(q, q') q'."""
        return -multiply(self.damping_matrix(q, qd), qd)

    def input_force(self, q: Float[Tensor, "*B d"], u: Float[Tensor, "*U m"]) -> Float[Tensor, "*C d"]:
        """b(q)^T u.

        Raises: ValueError if the mechanism has no such number of inputs.
        """
        if self.inputs is None or u.shape[-1] != self.num_inputs:
            raise ValueError(
                f"This mechanism has {self.num_inputs} inputs, but {u.shape[-1]} values came.\n"
                f"  Pass a tensor whose last axis has length {self.num_inputs}, or None."
            )
        return self.inputs(q, u)

    # ---- edits and parameters
    def with_scales(self, potential: float = 1.0, damping: float = 1.0, mass: float = 1.0) -> Mechanism:
        """The same mechanism with edited physics; tensors are shared. Factors multiply the present ones.

        Raises: ValueError for a mass that is not positive or a negative factor.
        """
        if not (mass > 0 and potential >= 0 and damping >= 0):
            raise ValueError(
                f"Factors must be >= 0 and that of the mass > 0, but got potential={potential}, damping={damping}, "
                f"mass={mass}.\n  1.0 leaves a term as it was identified, 0.0 switches it off."
            )
        result = copy.copy(self)
        result.potential_scale = self.potential_scale * potential
        result.damping_scale = self.damping_scale * damping
        result.mass_scale = self.mass_scale * mass
        return result

    def _free_parts(self) -> dict[str, HasFreeParameters]:
        parts = {"metric": self.metric, "potential": self.potential, "damping": self.damping, "inputs": self.inputs}
        return {name: part for name, part in parts.items() if isinstance(part, HasFreeParameters)}

    def parameter_vector(self) -> Float[Tensor, " n"]:
        """All free parameters of the parts that offer them: metric, potential, damping, inputs."""
        return torch.cat([part.parameter_vector() for part in self._free_parts().values()])

    def parameter_prior(self) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """Mean and standard deviation of the free parameters before any data."""
        priors = [part.parameter_prior() for part in self._free_parts().values()]
        return torch.cat([mean for mean, _ in priors]), torch.cat([spread for _, spread in priors])

    def set_vector(self, values: Float[Tensor, " n"]) -> None:
        """Writes the free parameters into the parts themselves."""
        start = 0
        with torch.no_grad():
            for part in self._free_parts().values():
                assert isinstance(part, nn.Module)
                count = part.parameter_vector().shape[0]
                moved = part.with_vector(values[start : start + count])
                for name, tensor in [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]:
                    tensor.copy_(getattr(moved, name))
                start += count

    def with_vector(self, values: Float[Tensor, "*P n"]) -> Mechanism:
        """A copy with other free parameters: a batch [*P] of vectors makes a batch of mechanisms.

        A batch must broadcast against that of q: for q [S, W, d] pass [S, 1, n].
        """
        result, start = copy.copy(self), 0
        result._modules = dict(self._modules)
        for name, part in self._free_parts().items():
            count = part.parameter_vector().shape[0]
            result._modules[name] = part.with_vector(values[..., start : start + count])
            start += count
        return result
