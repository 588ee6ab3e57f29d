"""The start of an identification: a linear regression of forces in weak form.

Multiplying the equation of motion by a bump psi(t) and integrating by parts moves the second derivative from the noisy
path to the bump: integral of psi M q'' = - integral of (psi' M + psi dM/dt) q'.
Source: Messenger and Bortz, "Weak SINDy", 2021 (test functions); LaGSplat's equation of motion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.observed import ObservedPath, Segment
from lagsplat_ns.dynamics.parts import multiply
from lagsplat_ns.dynamics.selection import set_stiffness
from lagsplat_ns.dynamics.smoothing import Smoothed
from lagsplat_ns.dynamics.structure import TILT

__all__ = ["angular_frequency", "start_by_regression"]


def angular_frequency(smoothed: list[Smoothed], segments: list[Segment], periods: Tensor | None = None) -> float:
    """A typical angular frequency of a path, rad/s: that of rates over deviations; the rate itself of what turns.

    periods [d]: after how much a coordinate that turns has come round, infinite for others.
    """
    rate = torch.cat([smoothed[s.clip].qd[s.begin : s.end] for s in segments])
    value = torch.cat([smoothed[s.clip].q[s.begin : s.end] for s in segments])
    each = rate.std(dim=0) / value.std(dim=0).clamp(min=1e-12)
    if periods is not None:
        turning = 2 * math.pi * rate.square().mean(0).sqrt() / periods
        each = torch.where(torch.isfinite(periods), turning, each)
    return max(float(each.max()), 1e-3)


@dataclass(frozen=True)
class _Columns:
    """Columns of the regression by the term that they belong to, in the order of the design; scale of each prior."""

    names: list[str]
    spreads: list[Tensor]

    def part(self, solution: Tensor, name: str) -> Tensor:
        start = 0
        for own, spread in zip(self.names, self.spreads):
            if own == name:
                return solution[start : start + len(spread)]
            start += len(spread)
        return solution[:0]


def _design(
    mechanism: Mechanism, q: Tensor, qd: Tensor, u: Tensor | None, omega: float, kappa: float
) -> tuple[Tensor, _Columns]:
    """Forces [T, d, K] of every term that enters linearly, on the left side of the equation, and their priors."""
    potential, damping, d = mechanism.potential, mechanism.damping, mechanism.latent_dim
    mass, scale = mechanism.mass_matrix(q), potential.scale
    y, unit = (q - potential.center) / scale, torch.eye(d, dtype=q.dtype)
    names, spreads, blocks = [], [], []

    def add(name: str, columns: list[Tensor], spread: Tensor) -> None:
        if columns:
            names.append(name)
            spreads.append(spread)
            blocks.append(torch.stack(columns, dim=-1))

    rows, columns = torch.tril_indices(d, d)[:, potential.free_stiffness]
    stiff = []
    for i, j in zip(rows.tolist(), columns.tolist()):
        basis = 0.5 * (unit[i][:, None] * unit[j] + unit[j][:, None] * unit[i]) * (1.0 if i == j else 2.0)
        stiff.append((y @ basis) / scale)
    add("stiffness", stiff, q.new_full((len(stiff),), 3.0 * kappa))
    free = potential.free_weights
    add("weights", list(potential.term_slopes(q)[:, free].unbind(-2)), potential.prior_of_term[free] * kappa)
    if potential.has_harmonics:
        free = potential.free_harmonics
        add("harmonics", list(potential.harmonic_slopes(q)[:, free].unbind(-2)), q.new_full((int(free.sum()),), kappa))
    if mechanism.has_gravity:
        weight = mechanism.metric.gravity_columns(q)
        size = 3 * kappa / float((weight * scale).abs().amax(-1).mean().clamp(min=1e-12))
        add("gravity", list(weight.unbind(-2)), q.new_tensor([TILT * size, size]))
    add("viscous", [multiply(mass, qd)], q.new_tensor([omega]))
    if d > 1:
        inverse = torch.linalg.inv(damping.joint_rows)
        inertia = (inverse.T @ mass.mean(0) @ inverse).diagonal()
        friction = [(qd @ row)[:, None] * row for row in damping.joint_rows]
        add("friction", friction, omega * inertia)
    if mechanism.inputs is not None and u is not None:
        inputs = [-unit[i] * u[:, k : k + 1] for i in range(d) for k in range(u.shape[-1])]
        add("inputs", inputs, q.new_full((len(inputs),), 100.0))
    return torch.cat(blocks, dim=-1), _Columns(names, spreads)


def _bumps(t: Tensor, half_width_s: float) -> tuple[Tensor, Tensor]:
    """Test functions psi [R, T] and their slopes, times the weights of an integral over the frames."""
    weight = torch.zeros_like(t)
    weight[1:] += 0.5 * (t[1:] - t[:-1])
    weight[:-1] += 0.5 * (t[1:] - t[:-1])
    half = min(half_width_s, 0.5 * float(t[-1] - t[0]))
    num_bumps = max(int((float(t[-1] - t[0]) - 2 * half) / (0.35 * half)), 0) + 1
    centers = torch.linspace(float(t[0]) + half, float(t[-1]) - half, num_bumps, dtype=t.dtype)
    share = ((t - centers[:, None]) / half).clamp(-1, 1)
    return (1 - share**2) ** 3 * weight, -6 * share / half * (1 - share**2) ** 2 * weight


def start_by_regression(
    mechanism: Mechanism, paths: list[ObservedPath], smoothed: list[Smoothed], segments: list[Segment], omega: float
) -> float:
    """Sets stiffness, weights, gravity, damping and input map of a mechanism, with their prior scales, from the paths.

    Densities stay what they are: momentum would vanish, and with it all misfit, if mass went to where nothing moves.
    Cubic and higher terms are held down by their prior; the regression only has to land where shooting converges.
    omega: a typical angular frequency, rad/s. Returns the share of the momentum's rate that stays unexplained, a first
    sign of how good the form of the forces is.
    """
    potential = mechanism.potential
    typical = torch.cat(
        [
            multiply(
                mechanism.mass_matrix(smoothed[s.clip].q[s.begin : s.end]),
                potential.scale.expand(1, potential.latent_dim),
            )
            for s in segments
        ]
    )
    kappa = float((typical * potential.scale).abs().mean(dim=0).max()) * omega**2
    lefts, rights, columns = [], [], _Columns([], [])
    for s in segments:
        if s.num_frames < 8:
            continue
        span = slice(s.begin, s.end)
        t, q, qd = paths[s.clip].times_s[span], smoothed[s.clip].q[span], smoothed[s.clip].qd[span]
        inputs = paths[s.clip].inputs
        design, columns = _design(mechanism, q, qd, inputs(t) if inputs is not None else None, omega, kappa)
        # a clip shorter than a swing still gives several rows
        bump, slope = _bumps(t, min(1.5 / omega, 0.2 * float(t[-1] - t[0])))
        mass = mechanism.mass_matrix(q)
        mass_rate = torch.gradient(mass, spacing=(t,), dim=0)[0]
        extra = multiply(mass_rate, qd) - mechanism.coriolis_force(q, qd)
        right = torch.einsum("rt,td->rd", slope, multiply(mass, qd)) + torch.einsum("rt,td->rd", bump, extra)
        # rows of coordinates with little inertia count as much as others: divide by the typical size of a force
        size = (mass * potential.scale).abs().sum(-1).mean(0)
        lefts.append((torch.einsum("rt,tdk->rdk", bump, design) / size[:, None]).flatten(0, 1))
        rights.append((right / size).flatten())
    left, right, prior = torch.cat(lefts), torch.cat(rights), torch.cat(columns.spreads)
    solution, misfit = _robust_solution(left, right, prior)
    held = _held_stiffness(mechanism, columns, solution)
    if held is not None:  # what a spring must not be, the other terms have to make up for
        fixed = left[:, : len(held)] @ held
        rest, misfit = _robust_solution(left[:, len(held) :], right - fixed, prior[len(held) :])
        solution = torch.cat([held, rest])
    _write(mechanism, columns, solution, omega, kappa)
    return float(misfit.median() / right.abs().median().clamp(min=1e-12))


def _robust_solution(left: Tensor, right: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    """Least squares with a Gaussian prior in which rows that misfit (a hand, a wall) lose weight; and the misfits."""
    spread, weight = 0.1 * right.std() + 1e-12, torch.ones_like(right)
    solution, misfit = prior, right.abs()
    for _ in range(6):
        rows = torch.cat([left * prior * (weight / spread)[:, None], torch.eye(left.shape[1], dtype=left.dtype)])
        sides = torch.cat([right * weight / spread, torch.zeros(left.shape[1], dtype=left.dtype)])
        solution = prior * torch.linalg.lstsq(rows, sides[:, None]).solution[:, 0]
        misfit = (left @ solution - right).abs()
        spread = misfit.median() / 0.6745 + 1e-4 * right.std() + 1e-12
        weight = 1 / (1 + (misfit / (3 * spread)) ** 2).sqrt()
    return solution, misfit


def _held_stiffness(mechanism: Mechanism, columns: _Columns, solution: Tensor) -> Tensor | None:
    """The stiffness columns without negative springs, if gravity is there to make up for them; else None."""
    stiffness = columns.part(solution, "stiffness")
    if not (mechanism.has_gravity and len(stiffness)):
        return None
    d, free = mechanism.latent_dim, mechanism.potential.free_stiffness
    rows, below = torch.tril_indices(d, d)[:, free]
    matrix = torch.zeros(d, d, dtype=solution.dtype)
    matrix[rows, below] = matrix[below, rows] = stiffness
    values, vectors = torch.linalg.eigh(matrix)
    if float(values.min()) >= 0:
        return None
    return (vectors @ values.clamp(min=0).diag() @ vectors.T)[rows, below]


def _write(mechanism: Mechanism, columns: _Columns, solution: Tensor, omega: float, kappa: float) -> None:
    """Puts a solution of the regression, made physical, into the parts."""
    potential, damping, d = mechanism.potential, mechanism.damping, mechanism.latent_dim
    rows, below = torch.tril_indices(d, d)
    with torch.no_grad():
        potential.prior_scale.fill_(kappa)
        if bool(potential.free_stiffness.any()):
            stiffness = torch.zeros(d, d, dtype=solution.dtype)
            free = potential.free_stiffness
            stiffness[rows[free], below[free]] = columns.part(solution, "stiffness")
            least = 0.01 if mechanism.has_gravity else 0.05
            potential.prior_scale.fill_(max(set_stiffness(potential, stiffness, least), 0.1 * kappa))
        potential.weights[potential.free_weights] = columns.part(solution, "weights")
        potential.harmonics[potential.free_harmonics] = columns.part(solution, "harmonics")
        if mechanism.has_gravity:
            gravity = columns.part(solution, "gravity")
            size = max(float(gravity.norm()), 1e-6 * float(columns.part(torch.cat(columns.spreads), "gravity")[1]))
            mechanism.metric.gravity.copy_(gravity)
            mechanism.metric.gravity[1].clamp_(max=-0.01 * size)  # things fall downward
            mechanism.metric.prior_gravity.fill_(size)
        friction = columns.part(solution, "friction").clamp(min=0)
        rate = min(max(float(columns.part(solution, "viscous")), 0.01 * omega), omega)
        damping.log_rates[0] = math.log(rate)
        damping.prior_log_rates[0] = math.log(rate)
        if d > 1:
            typical = columns.part(torch.cat(columns.spreads), "friction") / omega  # inertia of the joints
            damping.prior_factor.copy_((0.3 * max(rate, 0.05 * omega) * typical).sqrt())
            damping.set_friction(torch.maximum(friction, 0.1 * damping.prior_factor**2))
        if mechanism.inputs is not None:
            chosen = columns.part(solution, "inputs").reshape(d, -1)
            mechanism.inputs.weights.zero_()
            mechanism.inputs.weights[0] = chosen
            mechanism.inputs.prior_scale.copy_(10.0 * chosen.abs().amax(dim=0).clamp(min=1e-9))
