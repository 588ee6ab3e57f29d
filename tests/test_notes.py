"""What an identification says about itself: what moved, where it can rest, and what is therefore not known."""

from __future__ import annotations

import math

import pytest
import torch

from lagsplat_ns.dynamics.analytic import with_damping
from lagsplat_ns.dynamics.damping import RayleighDamping
from lagsplat_ns.dynamics.gauss_newton import FitScales
from lagsplat_ns.dynamics.identified import Identified, IdentifiedPath
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.metric import ConstantMetric
from lagsplat_ns.dynamics.notes import describe, rest_states_of
from lagsplat_ns.dynamics.observed import ObservedPath, Segment
from lagsplat_ns.dynamics.potential import PolynomialPotential

NOISE = 1e-3
TIMES = torch.arange(90, dtype=torch.float64) / 30


def identified(mechanism: Mechanism, q: torch.Tensor, qd: torch.Tensor, form: str = "polynomial") -> Identified:
    """An identification that explains one path [T, d] to its noise."""
    d = q.shape[1]
    noise = torch.full((d,), NOISE, dtype=torch.float64)
    path = IdentifiedPath(TIMES, q, qd, torch.ones(len(TIMES), dtype=torch.bool), len(TIMES), [])
    return Identified(
        mechanism,
        [ObservedPath(TIMES, q)],
        [Segment(0, 0, len(TIMES))],
        torch.cat([mechanism.parameter_vector(), q[0], qd[0]]),
        noise,
        1.0,
        [path],
        FitScales(noise, noise, torch.ones(2 * d, dtype=torch.float64)),
        1,
        [torch.cat([q, qd], 1)],
        form=form,
    )


def springs(d: int, weights: dict[int, float] | None = None) -> Mechanism:
    """V = 1/2 |q|^2, or for one coordinate with weights of some powers a weak spring with these."""
    potential = PolynomialPotential(d, 4).requires_grad_(False)
    if weights:
        potential.stiffness_factor.fill_(0.1)
        for power, weight in weights.items():
            potential.weights[potential.exponents[:, 0] == power] = weight
    damping = with_damping(RayleighDamping(d), 0.2)
    return Mechanism(ConstantMetric(torch.eye(d, dtype=torch.float64)), potential, damping).requires_grad_(False)


@pytest.mark.parametrize("share", [4.0, 20.0])
def test_a_coordinate_that_hardly_moved_is_named(share: float) -> None:
    """`share`: its range over its noise."""
    phase = 5 * TIMES
    q = torch.stack([torch.cos(phase), 0.5 * share * NOISE * torch.cos(phase)], 1)
    qd = torch.stack([-5 * torch.sin(phase), -2.5 * share * NOISE * torch.sin(phase)], 1)
    notes = describe(identified(springs(2), q, qd), None, "")
    assert any(note.startswith("Range that was seen of each coordinate: -1 to 1, ") for note in notes)
    still = [note for note in notes if "hardly moved" in note]
    if share > 8.0:
        assert still == []
    else:
        assert still == [
            "Coordinate 2 hardly moved: its stiffness and damping are assumed, not seen. Film a clip in which it moves."
        ]


def test_a_thing_without_forces_returns_to_no_place() -> None:
    phase = 5 * TIMES
    q, qd = torch.cos(phase)[:, None], -5 * torch.sin(phase)[:, None]
    assert describe(identified(springs(1), q, qd, "free"), None, "")[-1] == (
        "No force acts but damping and inputs: it does not return to any place."
    )


def test_small_motions_and_all_places_of_rest_are_told() -> None:
    """A path over both wells of V shows two rest states, one within a well only that one."""
    wells = springs(1, {1: 0.02, 3: -0.6, 4: 0.45})
    phase = 5 * TIMES
    wide, wide_rate = 0.5 + 0.7 * torch.cos(phase), -3.5 * torch.sin(phase)
    narrow, narrow_rate = 0.9 + 0.1 * torch.cos(phase), -0.5 * torch.sin(phase)
    both = identified(wells, wide[:, None], wide_rate[:, None])
    rests = rest_states_of(both)
    assert rests.shape == (2, 1)
    assert float(wells.potential_energy(rests[0])) < float(wells.potential_energy(rests[1]))
    (note,) = (note for note in describe(both, None, "") if "come to rest" in note)
    assert note == (
        f"It can come to rest in 2 states, deepest first: q = {float(rests[0]):.3g}; {float(rests[1]):.3g}."
    )
    one = identified(wells, narrow[:, None], narrow_rate[:, None])
    torch.testing.assert_close(rest_states_of(one), rests[:1], rtol=0, atol=1e-9)
    notes = describe(one, None, "")
    assert not any("come to rest" in note for note in notes)

    plain = describe(identified(springs(1), wide[:, None], wide_rate[:, None]), None, "")
    period = 2 * math.pi / math.sqrt(1.001 - 0.1**2)
    assert plain[0] == f"Small motions: period {period:.4g} s, amplitude falls by e in 10 s."
