"""How to identify, and how much work it may take."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Budget", "IdentifyOptions"]


@dataclass(frozen=True)
class IdentifyOptions:
    """How to identify."""

    degree: int | None = None
    """highest power in the potential; by default 8 for one degree of freedom and 6 for several"""
    find_disturbed: bool = True
    """leave out spans that do not follow the physics of the rest (a hand, a blow)"""
    select_damping: bool = True
    """try air drag and dry friction, and keep what makes a held-out tail of the fitted part better"""
    window_periods: tuple[float, ...] = (1 / 6, 0.42, 0.84)
    """lengths of the shooting windows, in typical periods; each fit starts from the one before"""
    min_noise: float = 2e-5
    """noise that is assumed at least, as a share of the range of q"""
    max_iterations: int = 25
    """Gauss-Newton iterations of each fit at most"""
    periodic: tuple[int, ...] = ()
    """coordinates that come round, besides those that are seen to turn by more than 1.5 turns"""
    forms: tuple[str, ...] = ()
    """only these forms of the potential: free, gravity, spring, gravity and spring, polynomial; by default all"""
    quick: bool = False
    """a rough fit that is good enough to compare numbers of coordinates: fewer terms, no search for other damping"""
    max_rollouts: int | None = None
    """most work, in units of about 10 ms (see `Budget`); by default 260, or 70 when quick. Hard paths end there"""


_STEP_COSTS = (0.25, 0.8, 1.6, 2.2)
"""compiled rollouts of 25 steps of a thousand states with 1, 2, 3, 4 coordinates, in units of a `Budget`"""
_CALL_COST = 0.25
"""what a batch of rollouts costs besides, with the linear algebra that it is for"""


class Budget:
    """Work that is left, in units of about 10 ms on a core of 2024; counts work, not time."""

    def __init__(self, total: int) -> None:
        self.total, self.used, self.ceiling = total, 0.0, float(total)

    def allow(self, share: float) -> None:
        """From now on work may add up to this share of the total."""
        self.ceiling = share * self.total

    def spend(self, num_steps: int, num_states: int, latent_dim: int) -> None:
        cost = _STEP_COSTS[min(latent_dim, len(_STEP_COSTS)) - 1]
        self.used += _CALL_COST + cost * num_steps / 25 * num_states / 1000

    @property
    def is_spent(self) -> bool:
        return self.used >= self.ceiling
