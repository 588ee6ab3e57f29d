"""q'' of a mechanism: M^-1 (tau + b^T u - c - grad V - C q'), term by term, for one state and one parameter vector."""

from __future__ import annotations

import math

from lagsplat_ns.dynamics.compiled.group import device
from lagsplat_ns.dynamics.compiled.motion import motion

__all__ = ["acceleration"]


@device
def _subtract_potential(model, s, q, w):
    """force -= dV/dq of the spring, the clipped monomials and the harmonics."""
    d = q.shape[0]
    for i in range(d):
        y = (q[i] - model.center[i]) * model.inverse_scale[i]
        square = (y * model.inverse_clip) ** 2
        fourth = square * square
        eighth = fourth * fourth
        base = 1.0 + eighth * eighth
        root = 1.0 / math.sqrt(math.sqrt(math.sqrt(math.sqrt(base))))
        clipped = y * root
        w.clip_slope[i] = root / base * model.inverse_scale[i]
        w.momentum[i] = y  # until the spring is done
        power = 1.0
        for e in range(model.highest_power + 1):
            w.powers[i, e] = power
            power *= clipped
    for i in range(d):
        total = 0.0
        for j in range(d):
            total += model.stiffness[s, i, j] * w.momentum[j]
        w.force[i] -= total * model.inverse_scale[i]
    for t in range(model.term_axes.shape[0]):
        weight = model.weights[s, t]
        if weight != 0.0:
            a, ea = model.term_axes[t, 0], model.term_powers[t, 0]
            b, eb = model.term_axes[t, 1], model.term_powers[t, 1]
            other = w.powers[b, eb]
            w.force[a] -= weight * ea * w.powers[a, ea - 1] * other * w.clip_slope[a]
            if eb > 0:
                w.force[b] -= weight * eb * w.powers[b, eb - 1] * w.powers[a, ea] * w.clip_slope[b]
    for h in range(model.harmonic_axes.shape[0]):
        axis, rate = model.harmonic_axes[h], model.harmonic_rates[h]
        phase = rate * q[axis]
        slope = model.harmonics[s, h, 1] * math.cos(phase) - model.harmonics[s, h, 0] * math.sin(phase)
        w.force[axis] -= rate * slope


@device
def _add_inputs(model, s, q, u, w):
    """force += b(q)^T u."""
    d, blocks = q.shape[0], model.inputs.shape[1]
    for k in range(u.shape[0]):
        value = u[k]
        for i in range(d):
            b = model.inputs[s, 0, i, k]
            for block in range(1, blocks):
                y = (q[block - 1] - model.input_center[block - 1]) * model.input_inverse_scale[block - 1]
                b += y * model.inputs[s, block, i, k]
            w.force[i] += b * value


@device
def _inertia(model, s, slope, bend, w):
    """mass = D^T G D + ridge I; force -= the Coriolis force D^T G bend."""
    size, d = slope.shape
    for m in range(size):
        for i in range(d):
            w.product[m, i] = 0.0
        for n in range(size):
            g = model.gram[s, m, n]
            for i in range(d):
                w.product[m, i] += g * slope[n, i]
    for i in range(d):
        coriolis = 0.0
        for m in range(size):
            coriolis += bend[m] * w.product[m, i]
        w.force[i] -= model.mass_scale * coriolis
        for j in range(i + 1):
            total = 0.0
            for m in range(size):
                total += slope[m, i] * w.product[m, j]
            w.mass[i, j] = total
        w.mass[i, i] += model.ridge
    for i in range(d):
        for j in range(i):
            w.mass[j, i] = w.mass[i, j]


@device
def acceleration(model, s, q, qd, u, extra_weight, out, w):
    """Writes q'' [d] to `out`.

    s: which parameter vector; u [m or 0]: inputs; extra_weight [M or 0]: a force that pulls on motion numbers, as a
    weight does. Not finite where the mass matrix is not positive definite.
    """
    d = q.shape[0]
    for i in range(d):
        w.force[i] = 0.0
    has_extra = extra_weight.shape[0] > 0
    if has_extra or model.has_weight or not model.is_constant:
        motion(model, q, qd, w)
        slope = w.motion_slope if model.map.shape[0] > 0 else w.feature_slope
        bend = w.motion_bend if model.map.shape[0] > 0 else w.feature_bend
        if not model.is_constant:
            _inertia(model, s, slope, bend, w)
        if model.has_weight:
            for i in range(d):
                for m in range(slope.shape[0]):
                    w.force[i] += model.weight[s, m] * slope[m, i]
        if has_extra:
            for i in range(d):
                for m in range(slope.shape[0]):
                    w.force[i] += extra_weight[m] * slope[m, i]
    if model.is_constant:
        for i in range(d):
            for j in range(d):
                w.mass[i, j] = model.mass[s, i, j]
    _subtract_potential(model, s, q, w)
    if u.shape[0] > 0:
        _add_inputs(model, s, q, u, w)

    # damping: rate_i M q' with a rate of each group, and friction in the joints
    rates = model.rates
    for i in range(d):
        total, friction = 0.0, 0.0
        for j in range(d):
            total += w.mass[i, j] * qd[j]
            friction += model.extra[s, i, j] * qd[j]
        w.momentum[i] = total
        w.force[i] -= friction
    for i in range(d):
        rate = rates[s, 0]
        if model.has_speed:
            square = model.slow_square
            for j in range(d):
                square += model.same_group[i, j] * qd[j] * w.momentum[j]
            speed = math.sqrt(square)
            rate += rates[s, 1] * speed + rates[s, 2] / speed
        w.force[i] -= rate * w.momentum[i]
    _solve(w.mass, w.force, out)
    for i in range(d):
        out[i] /= model.mass_scale


@device
def _solve(mass, force, out):
    """out = mass^-1 force by Cholesky's factors, which replace `mass`; NaN where a pivot is not positive."""
    d = force.shape[0]
    for j in range(d):
        pivot = mass[j, j]
        for k in range(j):
            pivot -= mass[j, k] * mass[j, k]
        root = math.sqrt(pivot)  # NaN for a negative pivot
        inverse = 1.0 / root
        mass[j, j] = inverse
        for i in range(j + 1, d):
            total = mass[i, j]
            for k in range(j):
                total -= mass[i, k] * mass[j, k]
            mass[i, j] = total * inverse
    for i in range(d):
        total = force[i]
        for k in range(i):
            total -= mass[i, k] * out[k]
        out[i] = total * mass[i, i]
    for back in range(d):
        i = d - 1 - back
        total = out[i]
        for k in range(i + 1, d):
            total -= mass[k, i] * out[k]
        out[i] = total * mass[i, i]
