"""Articulated parts: derivatives against autograd, joints that hold, and a double pendulum's known inertia."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lagsplat_ns.gaussians.articulated import ArticulatedBases
from lagsplat_ns.gaussians.bases import motion_gram, placement
from lagsplat_ns.gaussians.metric import GeometricMetric


def tree() -> ArticulatedBases:
    """A cart, an arm on it, a bead that slides on the arm, and a thing of its own that turns about a pivot."""
    generator = torch.Generator().manual_seed(3)
    bases = ArticulatedBases(4, [-1, 0, 1, -1]).double()
    with torch.no_grad():
        for parameter in bases.parameters():
            parameter.copy_(0.6 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        bases.origin.copy_(torch.tensor([0.2, -0.1]))
        bases.angle_rows[0] = 0.0
        bases.slide_rows[3] = 0.0
    return bases.requires_grad_(False)


def carried(bases: ArticulatedBases, part: int, point: Tensor, q: Tensor) -> Tensor:
    """Where a part takes a canonical point."""
    weights = torch.zeros(1, bases.num_bases, dtype=torch.float64)
    weights[0, part] = 1.0
    return bases.origin + placement(point[None], bases.origin, weights)[0] @ bases(q)


def test_derivatives_agree_with_autograd() -> None:
    bases, q, qd = tree(), torch.tensor([0.3, -0.8, 0.5, 1.1]).double(), torch.tensor([1.0, -2.0, 0.7, 0.4]).double()
    slope = torch.autograd.functional.jacobian(bases, q)
    torch.testing.assert_close(bases.jacobian(q), slope, rtol=0, atol=1e-13)
    _, bend = torch.autograd.functional.jvp(lambda x: bases.jacobian(x) @ qd, q, qd)
    torch.testing.assert_close(bases.curvature(q, qd), bend, rtol=0, atol=1e-12)


def test_parts_meet_in_their_joint_at_every_state() -> None:
    bases = tree()
    with torch.no_grad():
        bases.slide_rows[1], bases.slide_offsets[1] = 0.0, 0.0
    for q in torch.randn(5, 4, dtype=torch.float64):
        joint = bases.anchors[1]
        torch.testing.assert_close(carried(bases, 0, joint, q), carried(bases, 1, joint, q), rtol=0, atol=1e-13)


def test_slide_moves_along_the_parents_axes() -> None:
    bases, q = tree(), torch.zeros(4, dtype=torch.float64)
    with torch.no_grad():
        bases.slide_rows[2, :, :3], bases.slide_offsets[2] = 0.0, 0.0
        bases.slide_rows[2, :, 3] = torch.tensor([1.0, 0.0])
        bases.angle_rows[:, 3] = 0.0
        bases.slide_rows[:2, :, 3] = 0.0
    shift = torch.tensor([0.0, 0.0, 0.0, 0.25]).double()
    moved = carried(bases, 2, bases.anchors[2], q + shift) - carried(bases, 2, bases.anchors[2], q)
    angle = bases.angles(q)[1]
    torch.testing.assert_close(moved, 0.25 * torch.stack([angle.cos(), angle.sin()]), rtol=0, atol=1e-13)


def test_two_arms_have_the_inertia_of_a_double_pendulum() -> None:
    """Point masses at the tips: M11 = (m1 + m2) l1^2, M22 = m2 l2^2, M12 = m2 l1 l2 cos(q1 - q2)."""
    bases = ArticulatedBases(2, [-1, 0]).double()
    with torch.no_grad():
        bases.angle_rows.copy_(torch.eye(2))
        bases.anchors.copy_(torch.tensor([[0.0, 0.0], [0.0, -0.3]], dtype=torch.float64))
    tips = torch.tensor([[0.0, -0.3], [0.0, -0.7]], dtype=torch.float64)
    masses = torch.tensor([0.25, 0.75]).double()
    gram = motion_gram(placement(tips, bases.origin, torch.eye(2).double()), masses)
    metric = GeometricMetric(bases.requires_grad_(False), gram, epsilon=0.0)
    q, qd = torch.tensor([[0.4, -0.5], [1.3, 0.6]], dtype=torch.float64)
    cross = 0.75 * 0.3 * 0.4 * torch.cos(q[0] - q[1])
    expected = torch.stack([torch.stack([q.new_tensor(0.09), cross]), torch.stack([cross, q.new_tensor(0.12)])])
    torch.testing.assert_close(metric.mass_matrix(q), expected, rtol=0, atol=1e-14)
    pull = 0.75 * 0.3 * 0.4 * torch.sin(q[0] - q[1])
    torch.testing.assert_close(
        metric.coriolis_force(q, qd), torch.stack([pull * qd[1] ** 2, -pull * qd[0] ** 2]), rtol=0, atol=1e-14
    )


def test_children_before_parents_are_refused() -> None:
    with pytest.raises(ValueError, match="must come before it"):
        ArticulatedBases(1, [1, -1])
