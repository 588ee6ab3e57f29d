"""The slope dm/dq and the bend d2m/dq2 [q', q'] of a motion vector made of monomials, sines and cosines."""

from __future__ import annotations

from lagsplat_ns.compiling.lanes import add_row, cos_sin, load, splat, store
from lagsplat_ns.dynamics.compiled import places as at
from lagsplat_ns.dynamics.compiled.group import device

__all__ = ["motion"]


@device
def _monomials(n, w):
    """phi, its slope, and its first and second derivative along q' (by Taylor polynomials of order two)."""
    k, d, exponents = n[at.K], n[at.D], n[at.EXPONENTS]
    for row in range(k):
        value, rate, half = splat(1.0), splat(0.0), splat(0.0)
        for i in range(d):
            q, qd = load(w, n[at.Q] + i), load(w, n[at.QD] + i)
            for _ in range(n[exponents + row * d + i]):
                half = half * q + rate * qd
                rate = rate * q + value * qd
                value = value * q
        store(w, n[at.PHI] + row, value)
        store(w, n[at.PHI_RATE] + row, rate)
        store(w, n[at.PHI_ACCEL] + row, 2.0 * half)
        for i in range(d):
            own = n[exponents + row * d + i]
            slope = splat(float(own))
            for other in range(d):
                power = n[exponents + row * d + other]
                if other == i:
                    power -= 1
                for _ in range(power):
                    slope = slope * load(w, n[at.Q] + other)
            store(w, n[at.PHI_SLOPE] + row * d + i, slope)


@device
def _linear_monomials(n, w):
    """The same for (1, q_1, ..., q_d)."""
    d = n[at.D]
    for row in range(d + 1):
        for i in range(d):
            store(w, n[at.PHI_SLOPE] + row * d + i, splat(1.0 if row == i + 1 else 0.0))
        store(w, n[at.PHI_ACCEL] + row, splat(0.0))
    store(w, n[at.PHI], splat(1.0))
    store(w, n[at.PHI_RATE], splat(0.0))
    for i in range(d):
        store(w, n[at.PHI] + 1 + i, load(w, n[at.Q] + i))
        store(w, n[at.PHI_RATE] + 1 + i, load(w, n[at.QD] + i))


@device
def _angles(n, c, w):
    """Cosine, sine, rate and acceleration (at constant q') of every angle, and its slope."""
    d, k = n[at.D], n[at.K]
    for j in range(n[at.J]):
        theta, rate, accel = splat(0.0), splat(0.0), splat(0.0)
        slopes = n[at.ANGLE_SLOPE] + j * d
        for i in range(d):
            store(w, slopes + i, splat(0.0))
        for row in range(k):
            factor = c[n[at.ANGLES] + j * k + row]
            if factor != 0.0:
                theta = theta + factor * load(w, n[at.PHI] + row)
                rate = rate + factor * load(w, n[at.PHI_RATE] + row)
                accel = accel + factor * load(w, n[at.PHI_ACCEL] + row)
                for i in range(d):
                    add_row(w, slopes + i, factor * load(w, n[at.PHI_SLOPE] + row * d + i))
        cosine, sine = cos_sin(theta)
        store(w, n[at.ANGLE] + 4 * j, cosine)
        store(w, n[at.ANGLE] + 4 * j + 1, sine)
        store(w, n[at.ANGLE] + 4 * j + 2, rate)
        store(w, n[at.ANGLE] + 4 * j + 3, accel)


@device
def _features(n, w):
    """Slopes and bends of all features phi x (1, cos theta or sin theta)."""
    d = n[at.D]
    for r in range(n[at.R]):
        place = n[at.FEATURES] + 3 * r
        row, j, which = n[place], n[place + 1], n[place + 2]
        slopes, angle_slopes = n[at.FEATURE_SLOPE] + r * d, n[at.ANGLE_SLOPE] + j * d
        phi = load(w, n[at.PHI] + row)
        phi_slopes = n[at.PHI_SLOPE] + row * d
        if which == 0:
            store(w, n[at.FEATURE_BEND] + r, load(w, n[at.PHI_ACCEL] + row))
            for i in range(d):
                store(w, slopes + i, load(w, phi_slopes + i))
            continue
        angle = n[at.ANGLE] + 4 * j
        value, along = load(w, angle), -load(w, angle + 1)  # of a cosine: itself and its derivative by theta
        if which == 2:
            value, along = load(w, angle + 1), load(w, angle)
        rate = load(w, angle + 2)
        bend = along * load(w, angle + 3) - value * rate * rate
        if row == 0:
            store(w, n[at.FEATURE_BEND] + r, bend)
            for i in range(d):
                store(w, slopes + i, along * load(w, angle_slopes + i))
        else:
            cross = 2.0 * load(w, n[at.PHI_RATE] + row) * along * rate
            store(w, n[at.FEATURE_BEND] + r, load(w, n[at.PHI_ACCEL] + row) * value + cross + phi * bend)
            for i in range(d):
                turned = phi * along * load(w, angle_slopes + i)
                store(w, slopes + i, load(w, phi_slopes + i) * value + turned)


@device
def motion(n, c, w):
    """Writes dm/dq to rows MOTION_SLOPE or, where there is no map, FEATURE_SLOPE; bends likewise."""
    d, r = n[at.D], n[at.R]
    if n[at.DEGREE] > 1:
        _monomials(n, w)
    else:
        _linear_monomials(n, w)
    _angles(n, c, w)
    _features(n, w)
    if n[at.HAS_MAP] == 0:
        return
    for m in range(n[at.M]):
        bend, slopes = splat(0.0), n[at.MOTION_SLOPE] + m * d
        for i in range(d):
            store(w, slopes + i, splat(0.0))
        for feature in range(r):
            factor = c[n[at.MAP] + m * r + feature]
            if factor != 0.0:
                bend = bend + factor * load(w, n[at.FEATURE_BEND] + feature)
                for i in range(d):
                    add_row(w, slopes + i, factor * load(w, n[at.FEATURE_SLOPE] + feature * d + i))
        store(w, n[at.MOTION_BEND] + m, bend)
