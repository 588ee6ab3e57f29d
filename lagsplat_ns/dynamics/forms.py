"""Forms of the potential, from the simplest to the most flexible: the data decide which of them is needed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.structure import HasGravity, Structure

__all__ = ["SPRING", "Form", "admit", "forms_of", "turning_periods"]

_TURNS = 1.5
"""range of a coordinate, in periods, from which it counts as one that turns"""


@dataclass(frozen=True)
class Form:
    """Which terms the potential has.

    gravity: the weight of the metric's masses; spring: a quadratic form and single-coordinate terms of up to
    `highest`; products: terms of several coordinates beyond the quadratic form too.
    """

    name: str
    gravity: bool = False
    spring: bool = False
    products: bool = False
    highest: int = 4


FREE = Form("free")
GRAVITY = Form("gravity", gravity=True)
SPRING = Form("spring", spring=True)
GRAVITY_AND_SPRING = Form("gravity and spring", gravity=True, spring=True)
POLYNOMIAL = Form("polynomial", spring=True, products=True, highest=8)


def forms_of(metric: object, latent_dim: int, quick: bool) -> list[Form]:
    """The forms to try, simplest first; a metric that does not know where its mass is has no gravity to offer."""
    if not (isinstance(metric, HasGravity) and metric.can_weigh):
        return [POLYNOMIAL]
    if latent_dim == 1:
        return [FREE, GRAVITY, POLYNOMIAL] if quick else [FREE, GRAVITY, GRAVITY_AND_SPRING, POLYNOMIAL]
    return [GRAVITY_AND_SPRING] if quick else [FREE, GRAVITY, GRAVITY_AND_SPRING, SPRING, POLYNOMIAL]


def turning_periods(structure: Structure, reach: Float[Tensor, " d"], marked: tuple[int, ...]) -> Float[Tensor, " d"]:
    """Periods of the coordinates that turn, infinite for the others: those marked, or that ran over 1.5 turns.

    Raises: ValueError for a marked coordinate that does not come round.
    """
    turns = reach > _TURNS * structure.periods
    for i in marked:
        if not 0 <= i < len(turns) or not bool(torch.isfinite(structure.periods[i])):
            raise ValueError(
                f"A periodic coordinate must turn a part by a multiple of itself, but coordinate {i} does not.\n"
                "  Mark only coordinates that are angles about a pivot."
            )
        turns[i] = True
    return torch.where(turns, structure.periods, torch.full_like(structure.periods, torch.inf))


def admit(mechanism: Mechanism, form: Form, structure: Structure, periods: Float[Tensor, " d"]) -> None:
    """Gives a mechanism the terms of a form; what it had besides becomes zero."""
    metric, potential = mechanism.metric, mechanism.potential
    if isinstance(metric, HasGravity):
        # The density of a single coordinate is a scale, and what it does to a potential of any shape is not seen.
        metric.admit(form.gravity, mechanism.latent_dim > 1)
    elastic = torch.full((mechanism.latent_dim,), form.spring)
    has_harmonics = form.spring and bool(torch.isfinite(periods).any())
    turning = periods if has_harmonics else torch.full_like(periods, torch.inf)
    elastic &= ~torch.isfinite(periods)
    potential.admit(elastic, structure.groups, turning, form.products, form.highest)
