"""What kernels compute is what the mechanism says in torch, for every combination of its parts."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import Tensor

from lagsplat_ns.compiling import pool
from lagsplat_ns.dynamics.analytic import DoublePendulumMetric, double_pendulum, pendulum
from lagsplat_ns.dynamics.compiled.pack import compiled_of
from lagsplat_ns.dynamics.compiled.prepare import prepare
from lagsplat_ns.dynamics.compiled.rolling import accelerations
from lagsplat_ns.dynamics.damping import RayleighDamping
from lagsplat_ns.dynamics.inputs import InputFunction, InputMap
from lagsplat_ns.dynamics.integrators import driven_acceleration
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.metric import ConstantMetric, LearnedMetric
from lagsplat_ns.dynamics.observed import ObservedPath, Segment
from lagsplat_ns.dynamics.potential import NeuralPotential, PolynomialPotential
from lagsplat_ns.dynamics.structure import Structure
from lagsplat_ns.dynamics.windows import Windows, cut_windows, roll_windows, roll_windows_in_torch
from lagsplat_ns.gaussians.articulated import ArticulatedBases
from lagsplat_ns.gaussians.bases import MotionBases, placement
from lagsplat_ns.gaussians.metric import GeometricMetric


def filled(module: torch.nn.Module, size: float = 0.5) -> torch.nn.Module:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(size * torch.randn_like(parameter))
    return module.requires_grad_(False)


def bases_of(kind: str, d: int) -> torch.nn.Module:
    if kind == "tree":  # parts with slides, a root that slides, two roots
        bases = filled(ArticulatedBases(d, [-1, 0, 1, -1][: max(d, 2)]).double())
        assert isinstance(bases, ArticulatedBases)
        bases.slide_rows[0] = 0.0
        return bases
    if kind == "joints":
        bases = filled(ArticulatedBases(d, list(range(-1, d - 1))).double())
        assert isinstance(bases, ArticulatedBases)
        bases.slide_rows.zero_()
        return bases
    return filled(MotionBases(d, 2, 3 if kind == "polynomial" else 2, has_pivots=kind == "pivots").double(), 0.3)


def metric_of(kind: str, d: int) -> torch.nn.Module:
    if kind == "constant":
        root = torch.randn(d, d, dtype=torch.float64) * (torch.arange(d)[:, None] // 2 == torch.arange(d) // 2)
        return ConstantMetric(root @ root.T + torch.eye(d, dtype=torch.float64))
    if kind == "wheel":  # constant inertia, but a weight that turns
        bases = MotionBases(1, 1, 1, has_pivots=True).double()
        filled(bases)
    else:
        bases = bases_of(kind, d)
    num = int(bases.num_bases)  # type: ignore[arg-type]
    points, skinning = torch.randn(40, 2).double(), torch.rand(40, num).double()
    skinning = skinning / skinning.sum(1, keepdim=True)
    matrices, mass = placement(points, bases.origin, skinning), torch.rand(40).double() / 40
    clusters = 1 if kind == "wheel" else 3
    parts = [range(c, 40, clusters) for c in range(clusters)]
    grams = torch.stack([torch.einsum("n,nci,ncj->ij", mass[p], matrices[p], matrices[p]) for p in map(list, parts)])
    moments = torch.stack([torch.einsum("n,nci->ci", mass[p], matrices[p]) for p in map(list, parts)])
    shares = torch.stack([mass[p].sum() for p in map(list, parts)]) / mass.sum()
    metric = GeometricMetric(bases, grams, moments, shares, epsilon=1e-3)
    metric.admit(gravity=True, densities=True)
    with torch.no_grad():
        metric.gravity.copy_(torch.tensor([0.3, -4.0]))
        metric.density_coordinates.copy_(torch.linspace(-0.5, 0.7, clusters))
    return metric


def mechanism_of(kind: str, d: int, has_all: bool) -> Mechanism:
    """All kinds of damping, harmonics, groups and inputs, or the plainest of each."""
    potential, damping = PolynomialPotential(d, 8 if d == 1 else 5), RayleighDamping(d)
    inputs = InputMap(d, 2, "general" if has_all else "constant")
    with torch.no_grad():
        potential.center.copy_(0.2 * torch.randn(d))
        potential.scale.copy_(0.5 + torch.rand(d))
        potential.weights.copy_(0.3 * torch.randn_like(potential.weights))
        potential.stiffness_factor.copy_(torch.randn_like(potential.stiffness_factor))
        damping.factor.copy_(0.3 * torch.randn_like(damping.factor))
        inputs.center.fill_(0.1)
        inputs.scale.copy_(0.5 + torch.rand(d))
        inputs.weights[: (None if has_all else 1)] = torch.randn_like(inputs.weights)[: (None if has_all else 1)]
    if has_all:
        periods, groups = torch.full((d,), math.inf).double(), torch.zeros(d, dtype=torch.long)
        if kind == "constant":  # two things that have no inertia in common
            groups = torch.arange(d) // 2
        periods[-1] = 4.0
        potential.admit(torch.ones(d, dtype=torch.bool), groups, periods)
        damping.belong_to(Structure(torch.randn(d, d).double(), groups, periods))
        with torch.no_grad():
            potential.harmonics.copy_(torch.randn_like(potential.harmonics))
            damping.is_active[1:] = True
            damping.slow_speed.fill_(0.3)
    return Mechanism(metric_of(kind, d), potential, damping, inputs).requires_grad_(False)


def worst(found: Tensor | np.ndarray, expected: Tensor) -> float:
    return float((torch.as_tensor(found) - expected).abs().max() / expected.abs().max())


KINDS = ("constant", "tree", "joints", "polynomial", "pivots")
CASES = [("wheel", 1), *((kind, d) for kind in KINDS for d in (1, 2, 3, 4))]


@pytest.mark.parametrize("has_all", [False, True])
@pytest.mark.parametrize(("kind", "d"), CASES)
def test_accelerations_of_a_batch_of_mechanisms(kind: str, d: int, has_all: bool) -> None:
    whole = mechanism_of(kind, d, has_all)
    vector = whole.parameter_vector()
    batch = whole.with_vector(vector + 0.05 * torch.randn(5, 1, vector.shape[0], dtype=torch.float64))
    edited = batch.with_scales(potential=0.7, damping=1.7, mass=2.3)
    q, qd = 0.7 * torch.randn(5, 30, d, dtype=torch.float64), torch.randn(5, 30, d, dtype=torch.float64)
    u = torch.randn(30, 2, dtype=torch.float64)
    for mechanism in (whole, batch, edited):
        compiled = compiled_of(mechanism)
        assert compiled is not None
        found = accelerations(compiled.model, q.numpy(), qd.numpy(), u.numpy())
        expected = driven_acceleration(mechanism, None, u.expand(5, -1, -1))(q, qd, torch.zeros(()))
        assert worst(found, expected) < 1e-12


@pytest.mark.parametrize("mechanism", [pendulum(drag=0.1, dry=0.05, torque_gain=2.0), double_pendulum()])
def test_problems_of_known_physics_are_compiled(mechanism: Mechanism) -> None:
    d = mechanism.latent_dim
    q, qd = 2 * torch.randn(1, 30, d, dtype=torch.float64), torch.randn(1, 30, d, dtype=torch.float64)
    u = torch.randn(30, mechanism.num_inputs, dtype=torch.float64)
    compiled = compiled_of(mechanism)
    assert compiled is not None
    found = accelerations(compiled.model, q.numpy(), qd.numpy(), u.numpy())
    driven = driven_acceleration(mechanism, None, u[None] if mechanism.num_inputs else None)
    assert worst(found, driven(q, qd, torch.zeros(()))) < 1e-12


def test_what_kernels_do_not_know_is_left_to_torch() -> None:
    class Foreign(DoublePendulumMetric):
        def kernel_terms(self) -> None:  # type: ignore[override]
            return None

    good = mechanism_of("joints", 2, False)
    assert compiled_of(good) is not None
    for name, part in (("metric", Foreign()), ("metric", LearnedMetric(2).double()), ("potential", NeuralPotential(2))):
        parts = {key: getattr(good, key) for key in ("metric", "potential", "damping", "inputs")}
        assert compiled_of(Mechanism(**{**parts, name: part})) is None


def test_a_mass_matrix_without_an_inverse_gives_no_number() -> None:
    mechanism = mechanism_of("joints", 2, False)
    metric = mechanism.metric
    metric.epsilon = 0.0
    metric.bases.angle_rows[:, 1] = 0.0
    compiled = compiled_of(mechanism)
    assert compiled is not None
    q = np.full((1, 1, 2), 0.3)
    found = accelerations(compiled.model, q, q, np.zeros((1, 2)))
    assert not np.isfinite(found).any()


def windows_of(observed: Tensor, inputs: InputFunction | None, substeps: int) -> Windows:
    """Windows of 12 frames at uneven times, the last one shorter."""
    times = torch.cat([torch.zeros(1), (0.02 + 0.02 * torch.rand(len(observed) - 1)).cumsum(0)]).double()
    path = ObservedPath(times, observed, inputs)
    return cut_windows([path], [Segment(0, 0, 20), Segment(0, 20, len(observed))], 12, substeps)


@pytest.mark.parametrize(("kind", "d"), [("wheel", 1), ("constant", 1), ("tree", 2), ("joints", 3), ("polynomial", 2)])
@pytest.mark.parametrize("num_threads", [1, 2])
def test_rollouts_of_windows(kind: str, d: int, num_threads: int) -> None:
    whole = mechanism_of(kind, d, True)
    windows = windows_of(
        0.3 * torch.randn(45, d).double(), lambda t: torch.stack([torch.sin(5 * t), torch.cos(3 * t)], -1), 2
    )
    assert len(set((windows.dt > 0).sum(1).tolist())) > 1
    vector = whole.parameter_vector()
    batch = whole.with_vector(vector + 0.01 * torch.randn(11, 1, vector.shape[0], dtype=torch.float64))
    starts = windows.observed[:, 0].expand(11, -1, -1), 0.3 * torch.randn(11, windows.num_windows, d).double()
    pool.set_num_threads(num_threads)
    try:
        found = roll_windows(batch, *starts, windows)
    finally:
        pool.set_num_threads(None)
    expected = roll_windows_in_torch(batch, *starts, windows)
    for ours, theirs in zip(found, expected):
        assert ours.shape == theirs.shape
        assert worst(ours, theirs) < 1e-10
    alone = roll_windows(whole.with_vector(vector[None]), starts[0][0], starts[1][0], windows)
    expected = roll_windows_in_torch(whole.with_vector(vector[None]), starts[0][0], starts[1][0], windows)
    assert worst(alone[0], expected[0]) < 1e-10


def test_a_rollout_that_leaves_the_range_of_numbers_is_no_number_from_there_on() -> None:
    mechanism = mechanism_of("joints", 2, False)
    windows = windows_of(0.3 * torch.randn(45, 2).double(), None, 1)
    starts = windows.observed[:, 0].clone(), torch.zeros(windows.num_windows, 2).double()
    starts[1][1] = 1e200
    q, _ = roll_windows(mechanism, *starts, windows)
    assert bool(torch.isnan(q[1, 1:]).all())
    assert bool(torch.isfinite(q[[0, 2]]).all())


def test_inputs_of_the_wrong_number_are_named() -> None:
    mechanism = mechanism_of("constant", 1, False)
    windows = windows_of(0.3 * torch.randn(45, 1).double(), lambda t: t[..., None], 1)
    with pytest.raises(ValueError, match="This mechanism has 2 inputs, but 1 values came"):
        roll_windows(mechanism, windows.observed[:, 0], windows.observed[:, 0], windows)


def test_another_process_does_not_compile_again() -> None:
    """The kernels that this process compiled or loaded are in the cache."""
    prepare()
    code = "from lagsplat_ns.dynamics.compiled.prepare import prepare; prepare()"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True, timeout=120
    )
    assert done.stderr == ""
