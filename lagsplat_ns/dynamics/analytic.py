"""Problems whose physics is exactly known: shared by tests and benchmarks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from lagsplat_ns.dynamics.compiled.terms import COSINE, SINE, HarmonicTerms, MetricTerms, MotionTerms
from lagsplat_ns.dynamics.damping import RayleighDamping
from lagsplat_ns.dynamics.inputs import InputMap
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.metric import ConstantMetric
from lagsplat_ns.dynamics.potential import PolynomialPotential
from lagsplat_ns.types import State

__all__ = [
    "DampedOscillator",
    "DoublePendulumMetric",
    "GravityPotential",
    "double_pendulum",
    "pendulum",
    "with_damping",
]


class GravityPotential(nn.Module):
    """V(q) = sum_i w_i (1 - cos q_i): weights on arms at absolute angles q_i from the vertical."""

    weights: Tensor

    def __init__(self, weights: Float[Tensor, " d"]) -> None:
        super().__init__()
        self.latent_dim = weights.shape[0]
        self.register_buffer("weights", weights.to(torch.float64))

    def forward(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B"]:
        return (self.weights * (1 - torch.cos(q))).sum(-1)

    def gradient(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B d"]:
        return self.weights * torch.sin(q)

    def hessian(self, q: Float[Tensor, " d"]) -> Float[Tensor, "d d"]:
        return (self.weights * torch.cos(q)).diag()

    def kernel_terms(self) -> HarmonicTerms:
        """The weights as the compiled dynamics read them."""
        table = torch.stack([-self.weights, torch.zeros_like(self.weights)], dim=-1)
        return HarmonicTerms(np.arange(self.latent_dim), np.ones(self.latent_dim), table)


class DoublePendulumMetric(nn.Module):
    """M = [[a, c cos(q1 - q2)], [c cos(q1 - q2), b]] in absolute angles: two arms on one pivot and one joint."""

    latent_dim = 2

    def __init__(self, a: float = 0.18, b: float = 0.09, c: float = 0.09) -> None:
        super().__init__()
        self.a, self.b, self.c = a, b, c

    def mass_matrix(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B d d"]:
        cross = self.c * torch.cos(q[..., 0] - q[..., 1])
        one = torch.ones_like(cross)
        return torch.stack([torch.stack([self.a * one, cross], -1), torch.stack([cross, self.b * one], -1)], -2)

    def coriolis_force(self, q: Float[Tensor, "*B d"], qd: Float[Tensor, "*B d"]) -> Float[Tensor, "*B d"]:
        cross = self.c * torch.sin(q[..., 0] - q[..., 1])
        return torch.stack([cross * qd[..., 1] ** 2, -cross * qd[..., 0] ** 2], dim=-1)

    def kernel_terms(self) -> MetricTerms:
        """The directions (cos q1, sin q1, cos q2, sin q2) and their inertia, as the compiled dynamics read them."""
        exponents = np.array([[0, 0], [1, 0], [0, 1]])
        features = np.array([[0, 0, COSINE], [0, 0, SINE], [0, 1, COSINE], [0, 1, SINE]])
        gram = torch.tensor([[self.a, self.c], [self.c, self.b]], dtype=torch.float64)
        gram = torch.kron(gram, torch.eye(2, dtype=torch.float64))
        motion = MotionTerms(exponents, np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), features, np.eye(4))
        return MetricTerms(motion, gram)


def with_damping(damping: RayleighDamping, viscous: float, drag: float = 0.0, dry: float = 0.0) -> RayleighDamping:
    """Sets c_0, c_1, c_2 of a damping; what is zero is switched off."""
    with torch.no_grad():
        for k, rate in enumerate((viscous - damping.floor, drag, dry)):
            damping.is_active[k] = k == 0 or rate > 0
            damping.log_rates[k] = math.log(max(rate, 1e-12))
    return damping


def pendulum(
    gravity_over_length: float = 16.0,
    viscous: float = 0.15,
    drag: float = 0.0,
    dry: float = 0.0,
    torque_gain: float = 0.0,
) -> Mechanism:
    """q'' = -g/l sin q - (c_0 + c_1 |q'| + c_2 / |q'|) q' + gain u."""
    inputs = None
    if torque_gain:
        inputs = InputMap(1, 1)
        with torch.no_grad():
            inputs.weights.fill_(torque_gain)
    potential = GravityPotential(torch.tensor([gravity_over_length]))
    damping = with_damping(RayleighDamping(1), viscous, drag, dry)
    metric = ConstantMetric(torch.eye(1, dtype=torch.float64))
    return Mechanism(metric, potential, damping, inputs).requires_grad_(False)


def double_pendulum(viscous: float = 0.15, joint_friction: float = 0.002) -> Mechanism:
    """Two point masses of 1 on massless arms of 0.3 under g = 9.81, with friction in the joint between the arms."""
    damping = with_damping(RayleighDamping(2), viscous)
    with torch.no_grad():
        root = math.sqrt(joint_friction)
        damping.factor.copy_(torch.tensor([root, -root, 0.0]))
    potential = GravityPotential(torch.tensor([5.886, 2.943]))
    return Mechanism(DoublePendulumMetric(), potential, damping).requires_grad_(False)


@dataclass(frozen=True)
class DampedOscillator:
    """q'' = -omega^2 q - c q' with its solution in closed form; omega in rad/s, c in 1/s, c < 2 omega."""

    omega: float = 3.0
    rate: float = 0.4

    def mechanism(self) -> Mechanism:
        potential = PolynomialPotential(1, degree=4)
        with torch.no_grad():
            potential.stiffness_factor.fill_(math.sqrt(self.omega**2 - potential.floor))
        damping = with_damping(RayleighDamping(1), self.rate)
        metric = ConstantMetric(torch.eye(1, dtype=torch.float64))
        return Mechanism(metric, potential, damping).requires_grad_(False)

    def exact(self, start: State, times_s: Float[Tensor, " T"]) -> State:
        """The state at times since `start` [1]; q and qd [T, 1]."""
        half = 0.5 * self.rate
        wd = math.sqrt(self.omega**2 - half**2)
        t = times_s[:, None]
        sine = (start.qd + half * start.q) / wd
        decay, cos, sin = torch.exp(-half * t), torch.cos(wd * t), torch.sin(wd * t)
        q = decay * (start.q * cos + sine * sin)
        qd = -half * q + decay * wd * (sine * cos - start.q * sin)
        return State(q, qd)
