"""From a mechanism of default parts to the arrays that kernels read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lagsplat_ns.dynamics.compiled import places
from lagsplat_ns.dynamics.compiled.layout import KernelModel, build_model
from lagsplat_ns.dynamics.compiled.terms import HarmonicTerms, HasKernelTerms, MetricTerms, MotionTerms
from lagsplat_ns.dynamics.damping import RayleighDamping
from lagsplat_ns.dynamics.inputs import InputMap
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.potential import NUM_HARMONICS, PolynomialPotential

__all__ = ["CompiledMechanism", "compiled_of"]


class CompiledMechanism:
    """A mechanism, or a batch of them, as arrays.

    model: what kernels read; batch: the shape *P of its parameter vectors, () for a single one; reduced: motion numbers
    of the metric [4 P] to those of the kernel (a weight on the former, times this, is one on the latter); num_inputs.
    """

    def __init__(self, model: KernelModel, batch: tuple[int, ...], reduced: np.ndarray | None, num_inputs: int) -> None:
        self.model, self.batch, self.reduced, self.num_inputs = model, batch, reduced, num_inputs

    @property
    def latent_dim(self) -> int:
        return self.model.size(places.D)

    def reduced_weight(self, weight: np.ndarray) -> np.ndarray:
        """A weight on the metric's motion vector [4 P] as one on the kernel's motion numbers."""
        assert self.reduced is not None, "only a metric with a motion can be pulled at"
        return weight @ self.reduced


class _Unsupported(Exception):
    """A part that kernels do not know."""


@torch.no_grad()
def compiled_of(mechanism: Mechanism) -> CompiledMechanism | None:
    """The mechanism for kernels, or None where a part of it has no compiled form (networks, foreign modules).

    Numbers are copied: parameters that change later are not seen, nor derivatives by them.
    Law: tests/laws/test_compiled.py, equal to `driven_acceleration` up to round-off.
    """
    try:
        return _compiled(mechanism)
    except _Unsupported:
        return None


class _Batch:
    """Collects tensors whose leading axes are a batch of parameter vectors, then makes arrays [S, ...] of them."""

    def __init__(self) -> None:
        self.tensors: dict[str, tuple[Tensor, int]] = {}

    def add(self, name: str, tensor: Tensor, num_axes: int) -> None:
        """num_axes: how many axes at the end are the tensor's own."""
        if tensor.device.type != "cpu":
            raise _Unsupported
        self.tensors[name] = (tensor.detach().to(torch.float64), num_axes)

    def arrays(self) -> tuple[tuple[int, ...], dict[str, np.ndarray]]:
        batch = tuple(torch.broadcast_shapes(*(t.shape[: t.dim() - n] for t, n in self.tensors.values())))
        arrays = {}
        for name, (tensor, n) in self.tensors.items():
            own = tensor.shape[tensor.dim() - n :]
            arrays[name] = np.ascontiguousarray(tensor.expand(*batch, *own).reshape(math.prod(batch), *own).numpy())
        return batch, arrays


def _compiled(mechanism: Mechanism) -> CompiledMechanism:
    d, batch = mechanism.latent_dim, _Batch()
    motion, metric, reduced = _metric(mechanism.metric, d, batch)
    potential = _potential(mechanism.potential, d, mechanism.potential_scale, batch)
    damping = _damping(mechanism.damping, d, mechanism.damping_scale, batch)
    inputs, num_inputs = _inputs(mechanism.inputs, d, batch)
    if metric["has_weight"]:
        batch.tensors["weight"] = (mechanism.potential_scale * batch.tensors["weight"][0], 1)
    shape, arrays = batch.arrays()
    values: dict[str, Any] = {
        **motion, **metric, **potential, **damping, **inputs, **arrays, "mass_scale": float(mechanism.mass_scale)
    }  # fmt: skip
    return CompiledMechanism(build_model(values), shape, reduced, num_inputs)


def _metric(metric: Any, d: int, batch: _Batch) -> tuple[dict[str, Any], dict[str, Any], np.ndarray | None]:
    terms = metric.kernel_terms() if isinstance(metric, HasKernelTerms) else None
    if not isinstance(terms, MetricTerms):
        raise _Unsupported
    motion, reduced = _no_motion(d), None
    if terms.motion is not None:
        motion, reduced = _motion(terms.motion)
    size = motion["map"].shape[0] or motion["features"].shape[0]
    zero = torch.zeros(size, size, dtype=torch.float64)
    is_constant = terms.mass is not None
    if not is_constant and terms.gram is None:
        raise _Unsupported
    gram, weight = terms.gram, terms.weight
    if reduced is not None:
        matrix = torch.from_numpy(reduced)
        gram = None if gram is None else matrix.T @ gram.double() @ matrix
        weight = None if weight is None else weight.double() @ matrix
    batch.add("gram", zero if gram is None else gram, 2)
    batch.add("weight", zero.sum(0) if weight is None else weight, 1)
    batch.add("mass", torch.zeros(d, d) if terms.mass is None else terms.mass, 2)
    flags = {"is_constant": is_constant, "has_weight": weight is not None, "ridge": float(terms.ridge)}
    return motion, flags, reduced


def _no_motion(d: int) -> dict[str, Any]:
    return {
        "exponents": np.zeros((1, d), np.int64),
        "angles": np.zeros((0, 1)),
        "features": np.zeros((0, 3), np.int64),
        "map": np.zeros((0, 0)),
        "degree": 0,
    }


def _motion(terms: MotionTerms) -> tuple[dict[str, Any], np.ndarray]:
    """Arrays of the motion, and the matrix from its numbers to the kernel's: features where these are fewer."""
    degree = int(terms.exponents.sum(1).max())
    if degree == 0:
        raise _Unsupported
    used = [
        r
        for r, (monomial, angle, which) in enumerate(terms.features)
        if (monomial > 0 or (which > 0 and bool(np.any(terms.angles[angle, 1:])))) and np.any(terms.map[:, r])
    ]
    features, matrix = np.ascontiguousarray(terms.features[used], np.int64), np.ascontiguousarray(terms.map[:, used])
    is_reduced = matrix.shape[1] <= matrix.shape[0]
    arrays = {
        "exponents": np.ascontiguousarray(terms.exponents, np.int64),
        "angles": np.ascontiguousarray(terms.angles, np.float64),
        "features": features.reshape(-1, 3),
        "map": np.zeros((0, 0)) if is_reduced else matrix,
        "degree": degree,
    }
    return arrays, matrix if is_reduced else np.eye(matrix.shape[0])


def _potential(potential: Any, d: int, scale: float, batch: _Batch) -> dict[str, Any]:
    if type(potential) is PolynomialPotential and potential.extra is None:
        exponents = potential.exponents.numpy()
        axes, powers = np.zeros((len(exponents), 2), np.int64), np.zeros((len(exponents), 2), np.int64)
        for t, row in enumerate(exponents):
            used = np.flatnonzero(row)
            if len(used) > 2:
                raise _Unsupported
            axes[t, : len(used)], powers[t, : len(used)] = used, row[used]
        periods = potential.periods.numpy()
        turning = np.flatnonzero(np.isfinite(periods))
        orders = np.repeat(np.arange(1, NUM_HARMONICS + 1), len(turning))
        harmonic_axes = np.tile(turning, NUM_HARMONICS)
        table = potential.harmonics.unflatten(-1, (2, NUM_HARMONICS, d))[..., torch.from_numpy(turning)]
        harmonics = table.flatten(-2).transpose(-1, -2)  # [*P, H, 2]
        harmonic_rates = orders * 2 * np.pi / periods[harmonic_axes]
        center, inverse = potential.center.double().numpy().copy(), 1 / potential.scale.double().numpy()
        clip, highest = potential.clip, potential.degree
        stiffness, weights = potential.stiffness(), potential.weights
    else:
        terms = potential.kernel_terms() if isinstance(potential, HasKernelTerms) else None
        if not isinstance(terms, HarmonicTerms):
            raise _Unsupported
        axes = powers = np.zeros((0, 2), np.int64)
        harmonic_axes, harmonic_rates, harmonics = terms.axes, terms.rates, terms.weights
        center, inverse, clip, highest = np.zeros(d), np.ones(d), 1.0, 0
        stiffness, weights = torch.zeros(d, d), torch.zeros(0)
    batch.add("stiffness", scale * stiffness, 2)
    batch.add("weights", scale * weights, 1)
    batch.add("harmonics", scale * harmonics, 2)
    return {
        "center": center,
        "inverse_scale": inverse,
        "inverse_clip": 1.0 / clip,
        "terms": np.stack([axes, powers], axis=-1).reshape(-1, 4),
        "highest": highest,
        "harmonic_axes": np.ascontiguousarray(harmonic_axes, np.int64),
        "harmonic_rates": np.ascontiguousarray(harmonic_rates, np.float64),
    }


def _damping(damping: Any, d: int, scale: float, batch: _Batch) -> dict[str, Any]:
    if type(damping) is not RayleighDamping:
        raise _Unsupported
    drag, dry = damping.active_kinds
    rates = damping.log_rates.exp().double()
    viscous = rates[..., :1] + damping.floor
    columns = [viscous, rates[..., 1:2] * float(drag), rates[..., 2:] * float(dry)]
    batch.add("rates", scale * torch.cat(columns, dim=-1), 1)
    batch.add("extra", scale * damping.extra_damping() if d > 1 else torch.zeros(1, 1), 2)
    return {
        "has_speed": drag or dry,
        "slow_square": float(damping.slow_speed) ** 2,
        "same_group": np.ascontiguousarray(damping.same_group.double().numpy()),
    }


def _inputs(inputs: Any, d: int, batch: _Batch) -> tuple[dict[str, Any], int]:
    if inputs is None:
        batch.add("inputs", torch.zeros(1, d, 0), 3)
        return {"input_center": np.zeros(d), "input_scale": np.ones(d)}, 0
    if type(inputs) is not InputMap:
        raise _Unsupported
    batch.add("inputs", inputs.weights[..., :1, :, :] if inputs.kind == "constant" else inputs.weights, 3)
    center, scale = inputs.center.double().numpy().copy(), 1 / inputs.scale.double().numpy()
    return {"input_center": center, "input_scale": scale}, inputs.num_inputs
