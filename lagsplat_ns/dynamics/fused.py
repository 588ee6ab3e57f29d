"""The acceleration of the default parts in as few tensor operations as it takes: what an identification rolls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, no_type_check

import torch
from torch import Tensor

from lagsplat_ns.dynamics.damping import RayleighDamping
from lagsplat_ns.dynamics.integrators import Acceleration, Drive, driven_acceleration
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.metric import ConstantMetric
from lagsplat_ns.dynamics.parts import multiply
from lagsplat_ns.dynamics.potential import PolynomialPotential
from lagsplat_ns.dynamics.tabulated import TabulatedMetric

__all__ = ["fused_acceleration"]


@no_type_check  # in the innermost loop
def fused_acceleration(mechanism: Mechanism, inputs: Drive = None) -> Acceleration:
    """a(q, q', t) equal to `driven_acceleration` up to round-off; it is that for parts that are not the default ones.

    Coefficients are gathered once, here: parameters that change later are not seen, nor derivatives by them.
    Law: tests/laws/test_fused_acceleration.py.
    """
    potential, damping = mechanism.potential, mechanism.damping
    metric: Any = mechanism.metric
    is_known = type(potential) is PolynomialPotential and type(damping) is RayleighDamping and potential.extra is None
    is_known = is_known and not (potential.has_harmonics or mechanism.has_gravity) and bool(damping.same_group.all())
    is_edited = (mechanism.potential_scale, mechanism.damping_scale, mechanism.mass_scale) != (1.0, 1.0, 1.0)
    is_table = isinstance(metric, TabulatedMetric)
    is_constant = isinstance(metric, ConstantMetric) or bool(getattr(metric, "is_constant", False))
    d = mechanism.latent_dim
    if d > 2 or not is_known or is_edited or not (is_table or is_constant):
        return driven_acceleration(mechanism, None, inputs)
    gradient: Any = _line_force(potential) if d == 1 else _plane_force(potential)
    if gradient is None:
        return driven_acceleration(mechanism, None, inputs)
    table_values: Any = metric.values if is_table else None
    fixed: Any = None
    if is_constant:
        mass = metric.mass_matrix(potential.center)
        fixed = mass[0] if d == 1 else torch.stack([mass[0, 0], mass[0, 1], mass[1, 1]])
    rates = damping.log_rates.exp()
    viscous, drag, dry = rates[..., 0:1] + damping.floor, rates[..., 1:2], rates[..., 2:3]
    has_drag, has_dry = damping.active_kinds
    slow = damping.slow_speed**2
    extra: Any = damping.extra_damping() if d == 2 else None

    def rate_of(energy: Tensor) -> Tensor:
        speed = (energy + slow).sqrt()
        rate = viscous
        if has_drag:
            rate = rate + drag * speed
        return rate + dry / speed if has_dry else rate

    def line(q: Tensor, qd: Tensor, t: Tensor) -> Tensor:
        force, m = gradient(q), fixed
        if is_table:
            values = table_values(q)
            m = values[..., :1]
            force = force - values[..., 1:] * qd * qd
        if inputs is not None:
            force = force + mechanism.input_force(q, inputs(t) if callable(inputs) else inputs)
        rate = rate_of(m * qd * qd) if has_drag or has_dry else viscous
        return force / m - rate * qd

    def plane(q: Tensor, qd: Tensor, t: Tensor) -> Tensor:
        force = gradient(q) - multiply(extra, qd)
        values = table_values(q) if is_table else fixed
        m00, m01, m11 = values[..., 0:1], values[..., 1:2], values[..., 2:3]
        v, w = qd[..., :1], qd[..., 1:]
        if is_table:
            force = force - values[..., 3::3] * (v * v) - values[..., 4::3] * (v * w) - values[..., 5::3] * (w * w)
        if inputs is not None:
            force = force + mechanism.input_force(q, inputs(t) if callable(inputs) else inputs)
        rate = rate_of(m00 * v * v + 2 * m01 * v * w + m11 * w * w) if has_drag or has_dry else viscous
        x, y = force[..., :1], force[..., 1:]
        solved = torch.cat([m11 * x - m01 * y, m00 * y - m01 * x], dim=-1) / (m00 * m11 - m01 * m01)
        return solved - rate * qd

    return line if d == 1 else plane


@no_type_check  # in the innermost loop
def _line_force(potential: PolynomialPotential) -> Callable[[Tensor], Tensor]:
    """-dV/dq of one coordinate by Horner's rule, with q in units of the clip."""
    center, per_width, scale = potential.center, 1 / (potential.scale * potential.clip), potential.scale
    spring = -potential.stiffness()[..., 0] * potential.clip / scale
    slopes: list[Tensor | None] = [None] * potential.degree
    for index, power in enumerate(potential.exponents[:, 0].tolist()):
        slopes[power - 1] = -potential.weights[..., index : index + 1] * (power * potential.clip ** (power - 1) / scale)
    highest, *others = reversed(slopes)

    def force(q: Tensor) -> Tensor:
        z = (q - center) * per_width
        square = z * z
        fourth = square * square
        eighth = fourth * fourth
        base = (eighth * eighth).add_(1.0)
        root = base.pow(-0.0625)
        s = z * root
        total: Any = highest
        for coefficient in others:
            total = total * s if coefficient is None else coefficient.addcmul(total, s)
        return (total * root).div_(base).addcmul_(spring, z)

    return force


@no_type_check  # in the innermost loop
def _plane_force(potential: PolynomialPotential) -> Callable[[Tensor], Tensor] | None:
    """-grad V of two coordinates: all products of powers, times a matrix of each mechanism; None for odd batches."""
    terms = {(0, 0): 0}
    entries = []
    for index, exponent in enumerate(potential.exponents.tolist()):
        for axis in range(2):
            if exponent[axis]:
                lowered = list(exponent)
                lowered[axis] -= 1
                row = terms.setdefault(tuple(lowered), len(terms))
                entries.append((index, row, axis, exponent[axis]))
    linear = torch.zeros(potential.num_monomials, len(terms), 2, dtype=torch.float64)
    for index, row, axis, factor in entries:
        linear[index, row, axis] = -factor
    matrix = (potential.weights @ linear.flatten(1)).unflatten(-1, (len(terms), 2)) / potential.scale
    spring = -potential.stiffness() / potential.scale[:, None]
    while matrix.dim() > 2 and matrix.shape[0] == 1:
        matrix = matrix[0]
    if matrix.dim() == 4 and matrix.shape[1] == 1:
        matrix = matrix[:, 0]
    if matrix.dim() > 3:
        return None
    first, second = (torch.tensor([e[axis] for e in terms]) for axis in range(2))
    highest = max(max(e) for e in terms)

    def force(q: Tensor) -> Tensor:
        y = potential._scaled(q)
        s, slope = potential._clipped(y)
        powers = [torch.ones_like(s), s]
        for _ in range(highest - 1):
            powers.append(powers[-1] * s)
        table = torch.stack(powers, dim=-1)
        basis = table[..., 0, :].index_select(-1, first) * table[..., 1, :].index_select(-1, second)
        return torch.matmul(basis, matrix) * slope + multiply(spring, y)

    return force
