"""q'' of a mechanism: M^-1 (tau + b^T u - c - grad V - C q'), term by term, for eight states at once."""

from __future__ import annotations

from lagsplat_ns.compiling.lanes import add_row, cos_sin, load, splat, sqrt, store
from lagsplat_ns.dynamics.compiled import places as at
from lagsplat_ns.dynamics.compiled.group import device
from lagsplat_ns.dynamics.compiled.motion import motion

__all__ = ["acceleration"]


@device
def _subtract_spring(n, c, w):
    """force -= K y / scale, y = (q - center) / scale; keeps y in the rows of the momentum."""
    d = n[at.D]
    for i in range(d):
        y = (load(w, n[at.Q] + i) - c[n[at.CENTER] + i]) * c[n[at.INVERSE_SCALE] + i]
        store(w, n[at.MOMENTUM] + i, y)
    for i in range(d):
        total = splat(0.0)
        for j in range(d):
            total = total + load(w, n[at.STIFFNESS] + i * d + j) * load(w, n[at.MOMENTUM] + j)
        add_row(w, n[at.FORCE] + i, -total * c[n[at.INVERSE_SCALE] + i])


@device
def _subtract_terms(n, c, w):
    """force -= the slopes of the clipped monomials of y; see `PolynomialPotential`."""
    d, highest = n[at.D], n[at.HIGHEST]
    for i in range(d):
        y = load(w, n[at.MOMENTUM] + i)
        ratio = y * c[n[at.INVERSE_CLIP]]
        square = ratio * ratio
        fourth = square * square
        eighth = fourth * fourth
        base = 1.0 + eighth * eighth
        root = 1.0 / sqrt(sqrt(sqrt(sqrt(base))))
        clipped = y * root
        store(w, n[at.CLIP_SLOPE] + i, root / base * c[n[at.INVERSE_SCALE] + i])
        power, first = splat(1.0), n[at.POWERS] + i * (highest + 1)
        for e in range(highest + 1):
            store(w, first + e, power)
            power = power * clipped
    for t in range(n[at.T]):
        place = n[at.TERMS] + 4 * t
        a, ea, b, eb = n[place], n[place + 1], n[place + 2], n[place + 3]
        powers_a, powers_b = n[at.POWERS] + a * (highest + 1), n[at.POWERS] + b * (highest + 1)
        weight = load(w, n[at.WEIGHTS] + t)
        slope = weight * float(ea) * load(w, powers_a + ea - 1) * load(w, powers_b + eb)
        add_row(w, n[at.FORCE] + a, -slope * load(w, n[at.CLIP_SLOPE] + a))
        if eb > 0:
            slope = weight * float(eb) * load(w, powers_b + eb - 1) * load(w, powers_a + ea)
            add_row(w, n[at.FORCE] + b, -slope * load(w, n[at.CLIP_SLOPE] + b))


@device
def _subtract_harmonics(n, c, w):
    """force -= the slopes of a cos(r q_i) + b sin(r q_i)."""
    for h in range(n[at.H]):
        axis, rate = n[n[at.HARMONIC_AXES] + h], c[n[at.HARMONIC_RATES] + h]
        cosine, sine = cos_sin(rate * load(w, n[at.Q] + axis))
        slope = load(w, n[at.HARMONICS] + 2 * h + 1) * cosine - load(w, n[at.HARMONICS] + 2 * h) * sine
        add_row(w, n[at.FORCE] + axis, -slope * rate)


@device
def _add_inputs(n, c, w):
    """force += b(q)^T u."""
    d, num, blocks = n[at.D], n[at.NUM_INPUTS], n[at.BLOCKS]
    for i in range(d):
        total = splat(0.0)
        for block in range(blocks):
            part = splat(0.0)
            for k in range(num):
                part = part + load(w, n[at.INPUTS] + (block * d + i) * num + k) * load(w, n[at.U] + k)
            if block > 0:
                axis = block - 1
                y = (load(w, n[at.Q] + axis) - c[n[at.INPUT_CENTER] + axis]) * c[n[at.INPUT_SCALE] + axis]
                part = y * part
            total = total + part
        add_row(w, n[at.FORCE] + i, total)


@device
def _inertia(n, c, w, slopes, bends):
    """mass = D^T G D + ridge I; force -= the Coriolis force D^T G bend."""
    size, d = n[at.M], n[at.D]
    for m in range(size):
        for i in range(d):
            total = splat(0.0)
            for k in range(size):
                total = total + load(w, n[at.GRAM] + m * size + k) * load(w, slopes + k * d + i)
            store(w, n[at.PRODUCT] + m * d + i, total)
    for i in range(d):
        coriolis = splat(0.0)
        for m in range(size):
            coriolis = coriolis + load(w, bends + m) * load(w, n[at.PRODUCT] + m * d + i)
        add_row(w, n[at.FORCE] + i, -coriolis * c[n[at.MASS_SCALE]])
        for j in range(i + 1):
            total = splat(c[n[at.RIDGE]] if i == j else 0.0)
            for m in range(size):
                total = total + load(w, slopes + m * d + i) * load(w, n[at.PRODUCT] + m * d + j)
            store(w, n[at.INERTIA] + i * d + j, total)
            store(w, n[at.INERTIA] + j * d + i, total)


@device
def _add_weight(n, w, weight, slopes):
    """force += w . dm/dq."""
    d = n[at.D]
    for i in range(d):
        total = splat(0.0)
        for m in range(n[at.M]):
            total = total + load(w, weight + m) * load(w, slopes + m * d + i)
        add_row(w, n[at.FORCE] + i, total)


@device
def _subtract_damping(n, c, w):
    """force -= C q': rates of each group times M q', and friction in the joints."""
    d = n[at.D]
    for i in range(d):
        total, friction = splat(0.0), splat(0.0)
        for j in range(d):
            rate = load(w, n[at.QD] + j)
            total = total + load(w, n[at.INERTIA] + i * d + j) * rate
            friction = friction + load(w, n[at.EXTRA] + i * d + j) * rate
        store(w, n[at.MOMENTUM] + i, total)
        add_row(w, n[at.FORCE] + i, -friction)
    for i in range(d):
        rate = load(w, n[at.RATES])
        if n[at.HAS_SPEED] != 0:
            square = splat(c[n[at.SLOW_SQUARE]])
            for j in range(d):
                if c[n[at.SAME_GROUP] + i * d + j] != 0.0:
                    square = square + load(w, n[at.QD] + j) * load(w, n[at.MOMENTUM] + j)
            speed = sqrt(square)
            rate = rate + load(w, n[at.RATES] + 1) * speed + load(w, n[at.RATES] + 2) / speed
        add_row(w, n[at.FORCE] + i, -rate * load(w, n[at.MOMENTUM] + i))


@device
def _solve(n, c, w):
    """qdd = mass^-1 force / scale by Cholesky's factors, which replace the mass; NaN where a pivot is negative."""
    d, mass, out = n[at.D], n[at.INERTIA], n[at.QDD]
    for j in range(d):
        pivot = load(w, mass + j * d + j)
        for k in range(j):
            entry = load(w, mass + j * d + k)
            pivot = pivot - entry * entry
        inverse = 1.0 / sqrt(pivot)
        store(w, mass + j * d + j, inverse)
        for i in range(j + 1, d):
            total = load(w, mass + i * d + j)
            for k in range(j):
                total = total - load(w, mass + i * d + k) * load(w, mass + j * d + k)
            store(w, mass + i * d + j, total * inverse)
    for i in range(d):
        total = load(w, n[at.FORCE] + i)
        for k in range(i):
            total = total - load(w, mass + i * d + k) * load(w, out + k)
        store(w, out + i, total * load(w, mass + i * d + i))
    per_scale = 1.0 / c[n[at.MASS_SCALE]]
    for back in range(d):
        i = d - 1 - back
        total = load(w, out + i)
        for k in range(i + 1, d):
            total = total - load(w, mass + k * d + i) * load(w, out + k)
        store(w, out + i, total * load(w, mass + i * d + i))
    for i in range(d):
        store(w, out + i, load(w, out + i) * per_scale)


@device
def acceleration(n, c, w, has_inputs, has_pull):
    """Writes q'' to rows QDD, from rows Q and QD, inputs U and the weight PULL if they are to be read.

    n, c: the model's layout and shared numbers; w: memory, in which the vectors of the eight states are. A pull is a
    force on motion numbers, as a weight is. Not finite where the mass matrix is not positive definite.
    """
    d = n[at.D]
    for i in range(d):
        store(w, n[at.FORCE] + i, splat(0.0))
    is_constant = n[at.IS_CONSTANT] != 0
    if has_pull or n[at.HAS_WEIGHT] != 0 or not is_constant:
        motion(n, c, w)
        slopes = n[at.MOTION_SLOPE] if n[at.HAS_MAP] != 0 else n[at.FEATURE_SLOPE]
        if not is_constant:
            _inertia(n, c, w, slopes, n[at.MOTION_BEND] if n[at.HAS_MAP] != 0 else n[at.FEATURE_BEND])
        if n[at.HAS_WEIGHT] != 0:
            _add_weight(n, w, n[at.WEIGHT], slopes)
        if has_pull:
            _add_weight(n, w, n[at.PULL], slopes)
    if is_constant:
        for k in range(d * d):
            store(w, n[at.INERTIA] + k, load(w, n[at.MASS] + k))
    _subtract_spring(n, c, w)
    if n[at.T] > 0:
        _subtract_terms(n, c, w)
    _subtract_harmonics(n, c, w)
    if has_inputs:
        _add_inputs(n, c, w)
    _subtract_damping(n, c, w)
    _solve(n, c, w)
