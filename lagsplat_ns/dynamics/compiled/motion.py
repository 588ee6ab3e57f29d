"""The slope dm/dq and the bend d2m/dq2 [q', q'] of a motion vector made of monomials, sines and cosines."""

from __future__ import annotations

import math

from lagsplat_ns.dynamics.compiled.group import device

__all__ = ["motion"]


@device
def _monomials(model, q, qd, w):
    """phi, its slope, and its first and second derivative along q' (by Taylor polynomials of order two)."""
    k, d = model.exponents.shape
    for row in range(k):
        value, rate, half = 1.0, 0.0, 0.0
        for i in range(d):
            power = model.exponents[row, i]
            for _ in range(power):
                half = half * q[i] + rate * qd[i]
                rate = rate * q[i] + value * qd[i]
                value = value * q[i]
        w.phi[row], w.phi_rate[row], w.phi_accel[row] = value, rate, 2 * half
        for i in range(d):
            slope = float(model.exponents[row, i])
            for other in range(d):
                power = model.exponents[row, other] - (1 if other == i else 0)
                for _ in range(power):
                    slope *= q[other]
            w.phi_slope[row, i] = slope


@device
def _linear_monomials(q, qd, w):
    """The same for (1, q_1, ..., q_d); slopes of these are set once."""
    w.phi[0] = 1.0
    for i in range(q.shape[0]):
        w.phi[1 + i], w.phi_rate[1 + i] = q[i], qd[i]
        w.phi_slope[1 + i, i] = 1.0


@device
def motion(model, q, qd, w):
    """Writes dm/dq to `motion_slope` or, where there is no map, to `feature_slope`; bends likewise."""
    d, k = q.shape[0], model.exponents.shape[0]
    if model.degree > 1:
        _monomials(model, q, qd, w)
    else:
        _linear_monomials(q, qd, w)
    for j in range(model.angles.shape[0]):
        theta, rate, accel = 0.0, 0.0, 0.0
        for i in range(d):
            w.angle_slope[j, i] = 0.0
        for row in range(k):
            factor = model.angles[j, row]
            if factor != 0.0:
                theta += factor * w.phi[row]
                rate += factor * w.phi_rate[row]
                accel += factor * w.phi_accel[row]
                for i in range(d):
                    w.angle_slope[j, i] += factor * w.phi_slope[row, i]
        w.angle[j, 0], w.angle[j, 1] = math.cos(theta), math.sin(theta)
        w.angle[j, 2], w.angle[j, 3] = rate, accel
    for r in range(model.features.shape[0]):
        row, j, which = model.features[r, 0], model.features[r, 1], model.features[r, 2]
        value, along, rate, bend = 1.0, 0.0, 0.0, 0.0  # of 1, cos or sin; `along` times dtheta/dq
        if which == 1:
            value, along = w.angle[j, 0], -w.angle[j, 1]
        elif which == 2:
            value, along = w.angle[j, 1], w.angle[j, 0]
        if which > 0:
            rate = along * w.angle[j, 2]
            bend = along * w.angle[j, 3] - value * w.angle[j, 2] * w.angle[j, 2]
        if row == 0:
            w.feature_bend[r] = bend
            for i in range(d):
                w.feature_slope[r, i] = along * w.angle_slope[j, i] if which > 0 else 0.0
        else:
            phi = w.phi[row]
            w.feature_bend[r] = w.phi_accel[row] * value + 2.0 * w.phi_rate[row] * rate + phi * bend
            for i in range(d):
                slope = along * w.angle_slope[j, i] if which > 0 else 0.0
                w.feature_slope[r, i] = w.phi_slope[row, i] * value + phi * slope
    for m in range(model.map.shape[0]):
        bend = 0.0
        for i in range(d):
            w.motion_slope[m, i] = 0.0
        for r in range(model.map.shape[1]):
            factor = model.map[m, r]
            if factor != 0.0:
                bend += factor * w.feature_bend[r]
                for i in range(d):
                    w.motion_slope[m, i] += factor * w.feature_slope[r, i]
        w.motion_bend[m] = bend
