"""Gauss-Newton with Levenberg-Marquardt damping for multiple shooting.

Unknowns are the physics p [n] and the state at the start of every window X [W, 2 d]. Residuals: frames against the
observed path in units of its noise, gaps between windows, and the prior of p. `soft` fits weigh the gaps; `hard` fits
eliminate all states but those of the segments' starts through the linearized windows, so that each segment becomes one
exact rollout without ever having been rolled in one piece, which long stretches would not survive far from the
solution.
Source: Bock, "Recent advances in parameter identification for ODE", 1983 (condensing); Nocedal and Wright, 10.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.options import Budget
from lagsplat_ns.dynamics.windows import Windows, roll_windows, sensitivities

__all__ = ["FitScales", "ShootingFit", "fit_windows", "physics_information"]

_HARD_GAP = 100.0
_LEAST_DAMPING = 1e-8
_PATIENCE = 2


@dataclass(frozen=True)
class FitScales:
    """Sizes of residuals: noise of q [d], the matching level for rates [d]; typical sizes of states [2 d]."""

    noise: Tensor
    rate_noise: Tensor
    state_probes: Tensor


@dataclass
class ShootingFit:
    """Where a fit stands: physics p [n], window starts X [W, 2 d], and how well they explain the frames.

    window_rms [W]: residual of each window over the noise; gap_rms [W]: jump at its end over the noise (0 at a
    segment's end); residual_rms: over all counted frames; cost: half the sum of squares.
    """

    parameters: Tensor
    starts: Tensor
    cost: float = float("inf")
    residual_rms: float = float("inf")
    window_rms: Tensor = field(default_factory=lambda: torch.zeros(0))
    gap_rms: Tensor = field(default_factory=lambda: torch.zeros(0))


class _Problem:
    def __init__(
        self, mechanism: Mechanism, windows: Windows, scales: FitScales, gap_weight: float, fit_physics: bool = True
    ) -> None:
        self.mechanism, self.windows, self.scales = mechanism, windows, scales
        self.mean, self.spread = mechanism.parameter_prior()
        d = scales.noise.shape[0]
        self.d, self.num_windows, self.n = d, windows.num_windows, self.mean.shape[0]
        self.gap_scale = torch.cat([scales.noise, scales.rate_noise]) / gap_weight
        self.frame_weight = torch.ones(self.num_windows, dtype=scales.noise.dtype)
        self.gap_weight = windows.follows.to(scales.noise.dtype)
        self.fit_physics = fit_physics

    def residuals(self, states: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        """Unweighted residuals of frames [W, L + 1, d] and gaps [W, 2 d]."""
        frames = (states[..., : self.d] - self.windows.observed) / self.scales.noise * self.windows.counts[..., None]
        gaps = (states[..., -1, :] - starts.roll(-1, dims=-2)) / self.gap_scale
        return frames, gaps * self.windows.follows[:, None]

    def costs(self, parameters: Tensor, starts: Tensor) -> Tensor:
        """Half the weighted sums of squares [S] of a batch of physics [S, n] and starts [S, W, 2 d]."""
        d = self.d
        moved = self.mechanism.with_vector(parameters[:, None])
        q, qd = roll_windows(moved, starts[..., :d], starts[..., d:], self.windows)
        return self.costs_of(*self.residuals(torch.cat([q, qd], dim=-1), starts), parameters)

    def joined(self, parameters: Tensor, starts: Tensor) -> Tensor:
        """Window starts [S, W, 2 d] that lie on one rollout of every segment from its own start."""
        windows, d, firsts = self.windows, self.d, self.windows.first_of_segment.nonzero()[:, 0].tolist()
        length, ends = windows.dt.shape[1], [*firsts[1:], self.num_windows]
        longest = max(end - first for first, end in zip(firsts, ends))
        dt = windows.dt.new_zeros(len(firsts), longest * length)  # steps of no time fill up short windows
        for row, (first, end) in enumerate(zip(firsts, ends)):
            dt[row, : (end - first) * length] = windows.dt[first:end].flatten()
        whole = replace(windows, start_s=windows.start_s[firsts], dt=dt)
        moved, origin = self.mechanism.with_vector(parameters[:, None]), starts[:, firsts]
        both = torch.cat(roll_windows(moved, origin[..., :d], origin[..., d:], whole), dim=-1)
        result = starts.clone()
        for row, (first, end) in enumerate(zip(firsts, ends)):
            result[:, first:end] = both[:, row, : (end - first) * length : length]
        return result

    def costs_of(self, frames: Tensor, gaps: Tensor, parameters: Tensor) -> Tensor:
        """Half the weighted sums of squares [*S] of residuals that are known."""
        prior = ((parameters - self.mean) / self.spread).square().sum(-1)
        total = (self.frame_weight * frames.square().sum((-2, -1))).sum(-1)
        total = total + (self.gap_weight * gaps.square().sum(-1)).sum(-1)
        return (0.5 * (total + prior)).nan_to_num(nan=float("inf"))

    def reweigh(self, frames: Tensor, gaps: Tensor) -> None:
        """Cauchy weights: windows that misfit far beyond the usual pull less."""
        counted = self.windows.counts.sum(1) * self.d
        rms = (frames.square().sum((1, 2)) / counted).sqrt()
        jump = gaps.square().mean(1).sqrt()
        typical = 3 * max(1.0, float(rms.median()))
        self.frame_weight = 1 / (1 + (rms / typical) ** 2)
        followed = jump[self.windows.follows]
        if followed.numel():
            self.gap_weight = self.windows.follows / (1 + (jump / (3 * max(1.0, float(followed.median())))) ** 2)

    def normal_equations(
        self, states: Tensor, by_parameters: Tensor, by_starts: Tensor, parameters: Tensor, starts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Hessian and gradient over (p, X), from frames, gaps and prior."""
        n, w, twice, d = self.n, self.num_windows, 2 * self.d, self.d
        frames, gaps = self.residuals(states, starts)
        root = (self.frame_weight[:, None] * self.windows.counts).sqrt()[..., None] / self.scales.noise
        r = (frames * self.frame_weight.sqrt()[:, None, None]).flatten(1)
        jp = (by_parameters[:, :, :d] * root[..., None]).flatten(1, 2)
        jx = (by_starts[:, :, :d] * root[..., None]).flatten(1, 2)
        gap_root = self.gap_weight.sqrt()[:, None] / self.gap_scale
        gp, gx = by_parameters[:, -1] * gap_root[..., None], by_starts[:, -1] * gap_root[..., None]
        gaps = gaps * self.gap_weight.sqrt()[:, None]
        jp, jx, r = torch.cat([jp, gp], dim=1), torch.cat([jx, gx], dim=1), torch.cat([r, gaps], dim=1)
        size = n + w * twice
        hessian = torch.zeros(size, size, dtype=r.dtype)
        gradient = torch.zeros(size, dtype=r.dtype)
        flat = jp.flatten(0, 1)
        hessian[:n, :n] = flat.T @ flat + (1 / self.spread**2).diag()
        gradient[:n] = flat.T @ r.flatten() + (parameters - self.mean) / self.spread**2
        cross = jp.transpose(1, 2) @ jx  # [W, n, 2d]
        cross[1:] -= (gp.transpose(1, 2) * gap_root[:, None, :])[:-1]
        own = jx.transpose(1, 2) @ jx
        own[1:] += torch.diag_embed(gap_root[:-1] ** 2)
        pull = (jx.transpose(1, 2) @ r[..., None])[..., 0]
        pull[1:] -= (gap_root * gaps)[:-1]
        hessian[:n, n:] = cross.permute(1, 0, 2).flatten(1)
        hessian[n:, :n] = hessian[:n, n:].T
        gradient[n:] = pull.flatten()
        grid = hessian[n:, n:].view(w, twice, w, twice)
        index = torch.arange(w)
        grid[index, :, index, :] = own
        coupling = -(gx.transpose(1, 2) * gap_root[:, None, :])[:-1]  # window k with k + 1
        grid[index[:-1], :, index[1:], :] = coupling
        grid[index[1:], :, index[:-1], :] = coupling.transpose(1, 2)
        return hessian, gradient

    def condensing(
        self, states: Tensor, by_parameters: Tensor, by_starts: Tensor, starts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(T, o) with d(p, X) = T d(p, X of segment starts) + o, from windows that must join exactly."""
        n, twice = self.n, 2 * self.d
        firsts = self.windows.first_of_segment.nonzero()[:, 0].tolist()
        columns = n + len(firsts) * twice
        transform = torch.zeros(n + self.num_windows * twice, columns, dtype=starts.dtype)
        offset = torch.zeros(transform.shape[0], dtype=starts.dtype)
        transform[:n, :n] = torch.eye(n, dtype=starts.dtype)
        segment = -1
        for w in range(self.num_windows):
            rows = slice(n + w * twice, n + (w + 1) * twice)
            if bool(self.windows.first_of_segment[w]):
                segment += 1
                block = slice(n + segment * twice, n + (segment + 1) * twice)
                transform[rows, block] = torch.eye(twice, dtype=starts.dtype)
                continue
            before = slice(rows.start - twice, rows.start)
            transform[rows] = by_starts[w - 1, -1] @ transform[before]
            transform[rows, :n] += by_parameters[w - 1, -1]
            offset[rows] = by_starts[w - 1, -1] @ offset[before] + states[w - 1, -1] - starts[w]
        return transform, offset


def fit_windows(
    mechanism: Mechanism,
    start: ShootingFit,
    windows: Windows,
    scales: FitScales,
    gap_weight: float = 1.0,
    is_hard: bool = False,
    is_robust: bool = False,
    fit_physics: bool = True,
    max_iterations: int = 25,
    tolerance: float = 1e-5,
    budget: Budget | None = None,
) -> ShootingFit:
    """The least squares fit of physics and window starts; see the module's text for `soft` and `hard`.

    It ends when two iterations in a row lower the cost by less than the share `tolerance`, or the budget is spent.
    """
    problem = _Problem(mechanism, windows, scales, _HARD_GAP if is_hard else gap_weight)
    p, x, n, d = start.parameters.clone(), start.starts.clone(), problem.n, problem.d
    damping, cost = 1e-3 if not is_hard else 1e-6, float("inf")
    num_steps = windows.dt.shape[1] * windows.substeps
    frames, gaps, rms, small_gains = torch.zeros(0), torch.zeros(0), float("inf"), 0
    for iteration in range(max_iterations + 1):
        states, by_p, by_x = sensitivities(mechanism, p, x, windows, problem.spread, scales.state_probes)
        frames, gaps = problem.residuals(states, x)
        rms = float((frames.square().sum() / (windows.counts.sum() * d)).sqrt())
        if budget is not None:
            budget.spend(num_steps, (1 + n + 2 * d) * windows.num_windows, d)
        is_over = iteration == max_iterations or (budget is not None and budget.is_spent)
        if is_over or (is_hard and rms < 0.02 and float(gaps.abs().max()) < 0.02):
            break
        if is_robust:
            problem.reweigh(frames, gaps)
        if is_robust or iteration == 0:
            cost = float(problem.costs_of(frames, gaps, p))
        hessian, gradient = problem.normal_equations(states, by_p, by_x, p, x)
        offset = torch.zeros_like(gradient)
        transform = None
        if is_hard:
            transform, offset = problem.condensing(states, by_p, by_x, x)
            gradient = transform.T @ (gradient + hessian @ offset)
            hessian = transform.T @ hessian @ transform
        if not fit_physics:
            gradient, hessian = gradient.clone(), hessian.clone()
            gradient[:n], hessian[:n], hessian[:, :n] = 0, 0, 0
            hessian[:n, :n] = torch.eye(n, dtype=hessian.dtype)
        # Several kinds and strengths of damping at once: a batch of rollouts takes hardly longer than one. Steps held
        # back in proportion to the curvature are short where the data are sharp; those held back by the prior are short
        # where the data say little and the equations bend (densities that trade against each other).
        diagonal, prior = hessian.diagonal().clamp(min=1e-12), torch.zeros_like(gradient)
        prior[:n] = 1 / problem.spread**2
        strengths = [(damping * factor, 0.0) for factor in (0.1, 1.0, 10.0, 1e2, 1e3, 1e5)]
        strengths += [(_LEAST_DAMPING, factor) for factor in (1.0, 1e1, 1e2, 1e3, 1e4)] if fit_physics else []
        moves, kept = [], []
        for strength, hold in strengths:
            factor, failed = torch.linalg.cholesky_ex(hessian + (strength * diagonal + hold * prior).diag())
            if int(failed) == 0:
                move = -torch.cholesky_solve(gradient[:, None], factor)[:, 0]
                moves.append(move if transform is None else transform @ move + offset)
                kept.append(strength if hold == 0 else 0.1 * damping)
        if not moves:
            break
        steps = torch.stack(moves)
        new_p, new_x = p + steps[:, :n], x + steps[:, n:].view(len(moves), *x.shape)
        if is_hard:  # also each step with its segments rolled in one piece: what bends the linearized joints is no cost
            new_p, new_x = torch.cat([new_p, new_p]), torch.cat([new_x, problem.joined(new_p, new_x)])
        costs = problem.costs(new_p, new_x)
        if budget is not None:
            budget.spend(num_steps, len(new_p) * windows.num_windows, d)
        best = int(costs.argmin())
        if not float(costs[best]) < cost:
            break
        gain, cost = (cost - float(costs[best])) / max(cost, 1e-12), float(costs[best])
        p, x = new_p[best], new_x[best]
        damping = min(max(kept[best % len(kept)], _LEAST_DAMPING), 1e4)
        small_gains = small_gains + 1 if gain < tolerance else 0
        if small_gains == _PATIENCE:
            break
    counted = windows.counts.sum(1).clamp(min=1) * d
    window_rms = (frames.square().sum((1, 2)) / counted).sqrt()
    gap_rms = gaps.square().mean(1).sqrt() / (_HARD_GAP if is_hard else gap_weight)
    return ShootingFit(p, x, cost, rms, window_rms, gap_rms)


def physics_information(mechanism: Mechanism, fit: ShootingFit, windows: Windows, scales: FitScales) -> Tensor:
    """Inverse covariance [n, n] of the physics at a hard fit, the segments' starts marginalized, prior included.

    Starts that the frames do not determine at all drop out (pseudoinverse). Not finite where the rollouts are not.
    """
    problem = _Problem(mechanism, windows, scales, _HARD_GAP)
    p, x, n = fit.parameters, fit.starts, problem.n
    states, by_p, by_x = sensitivities(mechanism, p, x, windows, problem.spread, scales.state_probes)
    problem.gap_weight = torch.zeros_like(problem.gap_weight)
    hessian, _ = problem.normal_equations(states, by_p, by_x, p, x)
    transform, _ = problem.condensing(states, by_p, by_x, x)
    hessian = transform.T @ hessian @ transform
    cross = hessian[:n, n:]
    if not bool(torch.isfinite(hessian).all()):
        return torch.full((n, n), float("nan"), dtype=hessian.dtype)
    return hessian[:n, :n] - cross @ torch.linalg.pinv(hessian[n:, n:]) @ cross.T
