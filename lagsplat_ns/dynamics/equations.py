"""Equations of motion: accelerations from forces, and forces from accelerations."""

from __future__ import annotations

from typing import no_type_check

from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.parts import multiply, solve_positive_definite
from lagsplat_ns.types import State

__all__ = ["acceleration", "forward_dynamics", "inverse_dynamics"]


@no_type_check  # in the innermost loop
def acceleration(
    mechanism: Mechanism, q: Tensor, qd: Tensor, generalized_force: Tensor | None = None, inputs: Tensor | None = None
) -> Tensor:
    """q'' = M^-1 (tau + b^T u - c - grad V - C q'); shapes as in `forward_dynamics`, unchecked for speed."""
    mass = mechanism.mass_matrix(q)
    force = mechanism.conservative_force(q) - multiply(mechanism.damping_matrix(q, qd, mass), qd)
    force = force - mechanism.coriolis_force(q, qd)
    if generalized_force is not None:
        force = force + generalized_force
    if inputs is not None:
        force = force + mechanism.input_force(q, inputs)
    return solve_positive_definite(mass, force)


def forward_dynamics(
    mechanism: Mechanism,
    state: State,
    generalized_force: Float[Tensor, "*F d"] | None = None,
    inputs: Float[Tensor, "*U m"] | None = None,
) -> Float[Tensor, "*B d"]:
    """Accelerations q'' (1/s^2) of a state under a generalized force tau and inputs u.

    Source: LaGSplat, arXiv 2608.16324, Euler-Lagrange equation with Rayleigh dissipation.
    Law: tests/laws/test_dynamics.py, power balance and Euler-Lagrange residual.
    """
    return acceleration(mechanism, state.q, state.qd, generalized_force, inputs)


def inverse_dynamics(
    mechanism: Mechanism, state: State, qdd: Float[Tensor, "*B d"], inputs: Float[Tensor, "*U m"] | None = None
) -> Float[Tensor, "*B d"]:
    """The generalized force tau that must act for the accelerations q'' to happen."""
    q, qd = state.q, state.qd
    force = multiply(mechanism.mass_matrix(q), qdd) + mechanism.coriolis_force(q, qd)
    force = force - mechanism.conservative_force(q) - mechanism.dissipative_force(q, qd)
    return force if inputs is None else force - mechanism.input_force(q, inputs)
