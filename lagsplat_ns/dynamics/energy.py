"""Energies of a mechanism; their unit is a gauge, so print them relative to a known state."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.parts import multiply
from lagsplat_ns.types import State

__all__ = ["kinetic_energy", "lagrangian", "momentum", "rayleigh_dissipation", "total_energy"]


def momentum(mechanism: Mechanism, state: State) -> Float[Tensor, "*B d"]:
    """p = M(q) q'."""
    return multiply(mechanism.mass_matrix(state.q), state.qd)


def kinetic_energy(mechanism: Mechanism, state: State) -> Float[Tensor, "*B"]:
    """T = 1/2 q'^T M(q) q'."""
    return 0.5 * (state.qd * momentum(mechanism, state)).sum(-1)


def total_energy(mechanism: Mechanism, state: State) -> Float[Tensor, "*B"]:
    """E = T + V."""
    return kinetic_energy(mechanism, state) + mechanism.potential_energy(state.q)


def lagrangian(mechanism: Mechanism, state: State) -> Float[Tensor, "*B"]:
    """L = T - V."""
    return kinetic_energy(mechanism, state) - mechanism.potential_energy(state.q)


def rayleigh_dissipation(mechanism: Mechanism, state: State) -> Float[Tensor, "*B"]:
    """1/2 q'^T C(q, q') q'; the power lost is twice this."""
    return -0.5 * (state.qd * mechanism.dissipative_force(state.q, state.qd)).sum(-1)
