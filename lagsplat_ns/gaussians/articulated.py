"""Rigid parts tied into trees by pivots, joints and slides, as functions of the latent coordinates.

Plane vectors are complex numbers x + i z here, so that a rotation by theta is a factor exp(i theta). Part p carries a
canonical point c to o + E_p (c - o) + t_p with

    E_p = exp(i theta_p),  theta_p = theta0_p + a_p . q,
    t_p = t_parent + (E_parent - E_p) (b_p - o) + E_parent (s0_p + S_p q),

where b_p is the canonical point at which the part hangs on its parent (for a root: on the world, E = 1, t = 0). A pivot
or joint has S = 0, a slide has a = 0 (or the parent's row) and S of rank one, a free part has both. A thing that bends
is a chain of such parts whose angles are linear in a few modes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn


def as_complex(vectors: Float[Tensor, "*B 2"]) -> Complex[Tensor, "*B"]:
    """Plane vectors (x, z) as x + i z."""
    return torch.complex(vectors[..., 0], vectors[..., 1])


def _motion(turns: Tensor, shifts: Tensor) -> Tensor:
    """(Re E, Im E, Re t, Im t) of every part, flattened: one derivative order of the motion vector."""
    parts = torch.stack([turns.real, turns.imag, shifts.real, shifts.imag], dim=-1)
    return parts.flatten(-2)


class ArticulatedBases(nn.Module):
    """The motion vector m(q) [4 P] of parts tied into trees, with derivatives in closed form.

    parents: index of every part's parent, -1 for the world; parents come before their children.
    angle_offsets [P] radians, angle_rows [P, d]; anchors b [P, 2]; slide_offsets [P, 2], slide_rows [P, 2, d] in the
    parent's axes; origin o [2], scene units; has_free_rows: whether gradients reach the rows.

    Raises: ValueError if a parent does not come before its child.
    Law: tests/laws/test_articulated.py.
    """

    origin: Tensor
    parents: Tensor
    has_free_rows: Tensor
    _lineage: Tensor
    _slot: Tensor

    def __init__(self, latent_dim: int, parents: Sequence[int]) -> None:
        super().__init__()
        if any(not -1 <= parent < p for p, parent in enumerate(parents)):
            raise ValueError(
                f"Every part's parent must come before it, but the parents are {list(parents)}.\n"
                "  Order the parts from the roots (-1) outward."
            )
        num = len(parents)
        self.latent_dim, self.num_bases = latent_dim, num
        self.angle_offsets = nn.Parameter(torch.zeros(num))
        self.angle_rows = nn.Parameter(torch.zeros(num, latent_dim))
        self.anchors = nn.Parameter(torch.zeros(num, 2))
        self.slide_offsets = nn.Parameter(torch.zeros(num, 2))
        self.slide_rows = nn.Parameter(torch.zeros(num, 2, latent_dim))
        self.register_buffer("origin", torch.zeros(2))
        self.register_buffer("parents", torch.tensor(list(parents), dtype=torch.long))
        # Rows say which coordinate moves which joint: pictures may bend the modes of a chain, but not tie joints.
        self.register_buffer("has_free_rows", torch.tensor(False))
        for rows in (self.angle_rows, self.slide_rows):
            rows.register_hook(lambda grad: grad * self.has_free_rows)
        self.slide_offsets.register_hook(torch.zeros_like)
        lineage = torch.eye(num)
        for p, parent in enumerate(parents):
            if parent >= 0:
                lineage[p] += lineage[parent]
        self.register_buffer("_lineage", lineage, persistent=False)  # [P, P]: the parts between the world and p
        # where a part's parent stands once the world has been put in front of all parts
        self.register_buffer("_slot", torch.tensor(list(parents), dtype=torch.long) + 1, persistent=False)

    # ---- pieces
    def _arms(self) -> Tensor:
        return as_complex(self.anchors - self.origin)

    def _slides(self, q: Tensor) -> Tensor:
        return as_complex(self.slide_offsets + torch.einsum("pcd,...d->...pc", self.slide_rows, q))

    def _of_parents(self, values: Tensor, world: float) -> Tensor:
        """Values of every part's parent [*, P]; `world` where a part hangs on the world."""
        first = torch.full_like(values[..., :1], world)
        return torch.cat([first, values], dim=-1).index_select(-1, self._slot)

    def _accumulated(self, increments: Tensor) -> Tensor:
        """Sums of increments from the world down to every part."""
        return increments @ self._lineage.T.to(increments.dtype)

    # ---- the motion and its derivatives
    def angles(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B P"]:
        """Rotation of every part, radians."""
        return self.angle_offsets + q @ self.angle_rows.T

    def forward(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B P4"]:
        """The motion vector m(q)."""
        angles = self.angles(q)
        turns = torch.polar(torch.ones_like(angles), angles)
        above = self._of_parents(turns, 1.0)
        increments = (above - turns) * self._arms() + above * self._slides(q)
        return _motion(turns, self._accumulated(increments))

    def jacobian(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B P4 d"]:
        """dm/dq."""
        angles = self.angles(q)
        turns = torch.polar(torch.ones_like(angles), angles)
        above = self._of_parents(turns, 1.0)
        turned = 1j * self.angle_rows.T * turns[..., None, :]  # dE/dq [*, d, P]
        turned_above = self._of_parents(turned, 0.0)
        increments = (turned_above - turned) * self._arms() + turned_above * self._slides(q)[..., None, :]
        increments = increments + above[..., None, :] * as_complex(self.slide_rows.permute(2, 0, 1))
        return _motion(turned, self._accumulated(increments)).transpose(-1, -2)

    def curvature(self, q: Float[Tensor, "*B d"], qd: Float[Tensor, "*B d"]) -> Float[Tensor, "*B P4"]:
        """d2m/dq2 contracted twice with qd: the part of m'' that is not dm/dq q''."""
        angles, rates = self.angles(q), qd @ self.angle_rows.T
        turns = torch.polar(torch.ones_like(angles), angles)
        above, rates_above = self._of_parents(turns, 1.0), self._of_parents(rates, 0.0)
        bent, bent_above = -(rates**2) * turns, -(rates_above**2) * above
        moving = as_complex(torch.einsum("pcd,...d->...pc", self.slide_rows, qd))
        increments = (bent_above - bent) * self._arms() + bent_above * self._slides(q)
        increments = increments + 2j * rates_above * above * moving
        return _motion(bent, self._accumulated(increments))
