"""The start of an identification: a linear regression of forces in weak form.

Multiplying the equation of motion by a bump psi(t) and integrating by parts moves the second derivative from the noisy
path to the bump: integral of psi M q'' = - integral of (psi' M + psi dM/dt) q'.
Source: Messenger and Bortz, "Weak SINDy", 2021 (test functions); LaGSplat's equation of motion.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.observed import ObservedPath, Segment
from lagsplat_ns.dynamics.parts import multiply
from lagsplat_ns.dynamics.smoothing import Smoothed

__all__ = ["angular_frequency", "start_by_regression"]


def angular_frequency(smoothed: list[Smoothed], segments: list[Segment]) -> float:
    """A typical angular frequency of a path, rad/s: that of rates over deviations."""
    rate = torch.cat([smoothed[s.clip].qd[s.begin : s.end] for s in segments])
    value = torch.cat([smoothed[s.clip].q[s.begin : s.end] for s in segments])
    spread = value.std(dim=0).clamp(min=1e-12)
    return max(float((rate.std(dim=0) / spread).max()), 1e-3)


def _weak_rows(
    mechanism: Mechanism, path: ObservedPath, smoothed: Smoothed, segment: Segment, half_width_s: float
) -> tuple[Tensor, Tensor]:
    """Columns [R, K] and right sides [R] of the weak equations of one segment."""
    span = slice(segment.begin, segment.end)
    t, q, qd = path.times_s[span], smoothed.q[span], smoothed.qd[span]
    d, potential = q.shape[-1], mechanism.potential
    mass, scale = mechanism.mass_matrix(q), potential.scale
    mass_rate = torch.gradient(mass, spacing=(t,), dim=0)[0]
    y, unit = (q - potential.center) / scale, torch.eye(d, dtype=q.dtype)
    columns = []
    for i in range(d):
        for j in range(i + 1):
            basis = 0.5 * (unit[i][:, None] * unit[j] + unit[j][:, None] * unit[i]) * (1.0 if i == j else 2.0)
            columns.append((y @ basis) / scale)
    columns += list(potential.term_slopes(q).unbind(-2))
    columns.append(multiply(mass, qd))
    if mechanism.inputs is not None and path.inputs is not None:
        u = path.inputs(t)
        columns += [-unit[i] * u[:, k : k + 1] for i in range(d) for k in range(u.shape[-1])]
    design = torch.stack(columns, dim=-1)  # [T, d, K]
    weight = torch.zeros_like(t)
    weight[1:] += 0.5 * (t[1:] - t[:-1])
    weight[:-1] += 0.5 * (t[1:] - t[:-1])
    half = min(half_width_s, 0.5 * float(t[-1] - t[0]))
    num_bumps = max(int((float(t[-1] - t[0]) - 2 * half) / (0.35 * half)), 0) + 1
    centers = torch.linspace(float(t[0]) + half, float(t[-1]) - half, num_bumps, dtype=t.dtype)
    share = ((t - centers[:, None]) / half).clamp(-1, 1)
    bump = (1 - share**2) ** 3 * weight
    slope = -6 * share / half * (1 - share**2) ** 2 * weight
    left = torch.einsum("rt,tdk->rdk", bump, design)
    momentum, extra = multiply(mass, qd), multiply(mass_rate, qd) - mechanism.coriolis_force(q, qd)
    right = torch.einsum("rt,td->rd", slope, momentum) + torch.einsum("rt,td->rd", bump, extra)
    return left.flatten(0, 1), right.flatten()


def start_by_regression(
    mechanism: Mechanism,
    paths: list[ObservedPath],
    smoothed: list[Smoothed],
    segments: list[Segment],
) -> None:
    """Sets prior scales, stiffness, weights, damping rate and input map of a polynomial mechanism from the paths.

    Cubic and higher terms are held down by their prior; the regression only has to land where shooting converges.
    """
    omega = angular_frequency(smoothed, segments)
    pieces = []
    for s in segments:
        if s.num_frames >= 8:
            duration = float(paths[s.clip].times_s[s.end - 1] - paths[s.clip].times_s[s.begin])
            half = min(1.5 / omega, 0.2 * duration)  # a clip shorter than a swing still gives several rows
            pieces.append(_weak_rows(mechanism, paths[s.clip], smoothed[s.clip], s, half))
    left, right = torch.cat([p[0] for p in pieces]), torch.cat([p[1] for p in pieces])
    potential, damping, d = mechanism.potential, mechanism.damping, mechanism.latent_dim
    num_stiff, num_terms = d * (d + 1) // 2, potential.weights.shape[0]
    typical = torch.cat(
        [
            multiply(mechanism.mass_matrix(smoothed[s.clip].q[s.begin : s.end]), potential.scale.expand(1, d))
            for s in segments
        ]
    )
    kappa = float((typical * potential.scale).abs().mean(dim=0).max()) * omega**2
    prior = torch.full((left.shape[1],), 100.0, dtype=left.dtype)
    prior[:num_stiff] = 3.0 * kappa
    prior[num_stiff : num_stiff + num_terms] = potential.prior_of_term * kappa
    prior[num_stiff + num_terms] = omega
    spread, weight = 0.1 * right.std() + 1e-12, torch.ones_like(right)
    for _ in range(6):  # rows that misfit (a hand, a wall) lose weight
        rows = torch.cat([left * prior * (weight / spread)[:, None], torch.eye(left.shape[1], dtype=left.dtype)])
        sides = torch.cat([right * weight / spread, torch.zeros(left.shape[1], dtype=left.dtype)])
        solution = prior * torch.linalg.lstsq(rows, sides[:, None]).solution[:, 0]
        misfit = (left @ solution - right).abs()
        spread = misfit.median() / 0.6745 + 1e-4 * right.std() + 1e-12
        weight = 1 / (1 + (misfit / (3 * spread)) ** 2).sqrt()
    stiffness = torch.zeros(d, d, dtype=left.dtype)
    rows_, columns_ = torch.tril_indices(d, d)
    stiffness[rows_, columns_] = solution[:num_stiff]
    stiffness = stiffness + stiffness.T - stiffness.diag().diag()
    values, vectors = torch.linalg.eigh(stiffness)
    values = values.clamp(min=0.05 * kappa)
    factor = torch.linalg.cholesky(vectors @ values.diag() @ vectors.T)
    rate = min(max(float(solution[num_stiff + num_terms]), 0.01 * omega), omega)
    with torch.no_grad():
        potential.prior_scale.fill_(float(values.max()))
        potential.stiffness_factor.copy_(factor[rows_, columns_])
        potential.weights.copy_(solution[num_stiff : num_stiff + num_terms])
        damping.log_rates[0] = math.log(rate)
        damping.prior_log_rates[0] = math.log(rate)
        mass = mechanism.mass_matrix(potential.center[None])[0]
        damping.prior_factor.fill_(math.sqrt(0.3 * rate * float(mass.diagonal().mean())))
        damping.factor.copy_(torch.eye(d, dtype=left.dtype)[rows_, columns_] * 0.3 * float(damping.prior_factor))
        if mechanism.inputs is not None:
            chosen = solution[num_stiff + num_terms + 1 :].reshape(d, -1)
            mechanism.inputs.weights[0] = chosen
            mechanism.inputs.prior_scale.copy_(10.0 * chosen.abs().amax(dim=0).clamp(min=1e-9))
