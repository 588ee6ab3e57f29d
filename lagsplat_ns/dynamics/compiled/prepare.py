"""Compiling or loading all kernels of the dynamics at once, before they are first used."""

from __future__ import annotations

import numpy as np

from lagsplat_ns.compiling.kernels import untraced
from lagsplat_ns.dynamics.compiled.group import prepare_once
from lagsplat_ns.dynamics.compiled.layout import build_model
from lagsplat_ns.dynamics.compiled.rolling import accelerations, roll
from lagsplat_ns.dynamics.compiled.stepping import advance

__all__ = ["prepare"]


def prepare() -> None:
    """Makes sure that all kernels can run; says so once on a machine, where that means compiling them."""
    with untraced():
        prepare_once(_run_all)


def _run_all() -> None:
    one = np.ones((1, 1, 1))
    values = dict(
        exponents=np.array([[0], [1]]),
        angles=np.array([[0.0, 1.0]]),
        features=np.array([[0, 0, 1], [0, 0, 2]]),
        map=np.zeros((0, 0)),
        degree=1,
        ridge=0.0,
        is_constant=False,
        mass=one,
        gram=np.eye(2)[None],
        weight=np.zeros((1, 2)),
        has_weight=True,
        mass_scale=1.0,
        center=np.zeros(1),
        inverse_scale=np.ones(1),
        inverse_clip=1.0,
        terms=np.zeros((0, 4), np.int64),
        highest=0,
        stiffness=one,
        weights=np.zeros((1, 0)),
        harmonic_axes=np.zeros(0, np.int64),
        harmonic_rates=np.zeros(0),
        harmonics=np.zeros((1, 0, 2)),
        rates=np.zeros((1, 3)),
        has_speed=False,
        slow_square=0.0,
        same_group=np.ones((1, 1)),
        extra=np.zeros((1, 1, 1)),
        input_center=np.zeros(1),
        input_scale=np.ones(1),
        inputs=np.zeros((1, 1, 1, 0)),
    )
    model = build_model(values)
    accelerations(model, one, one)
    roll(model, one, one, np.full((1, 1), 0.01), np.zeros((1, 1, 0)), 1, num_threads=1)
    state, none = np.ones(1), np.zeros(0)
    advance(model, state, state, 0.01, 1 / 30, none, none, none)
