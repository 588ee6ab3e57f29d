"""Rest states: the stable minima of a potential."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.dynamics.mechanism import Mechanism

__all__ = ["rest_state", "rest_states"]


_FLAT = 1e-9
"""stiffness, over the largest one, below which a direction has none"""
_LEVEL = 0.01
"""slope along such a direction, over the largest stiffness, that counts as level: a track is never quite"""


def rest_state(mechanism: Mechanism, start: Float[Tensor, " d"], max_iterations: int = 200) -> Float[Tensor, " d"]:
    """The minimum of V downhill from `start`, by Newton steps where V is convex and damped ones elsewhere.

    Along directions in which V is flat (a wheel without imbalance, a cart on a level track) the start's value stays.
    Raises: ArithmeticError if no minimum is found, as for a thing that falls freely.
    """
    q = start.detach().clone()
    with torch.no_grad():
        value, damping = mechanism.potential_energy(q), 0.0
        size = mechanism.mass_matrix(q[None])[0].diagonal().amax()  # stiffness of this size means a rate of 1/s
        for _ in range(max_iterations):
            gradient, hessian = -mechanism.conservative_force(q), mechanism.potential_hessian(q)
            values, vectors = torch.linalg.eigh(hessian)
            stiffest = torch.maximum(values.abs().max(), _FLAT * size)
            along = vectors.T @ gradient
            is_flat = (values.abs() <= 1e3 * _FLAT * stiffest) & (along.abs() <= _LEVEL * stiffest)
            is_stable = bool(((values > 0) | is_flat).all())
            along = torch.where(is_flat, 0.0, along)
            if is_stable and float(along.norm()) <= 1e-11 * float(stiffest * (1 + q.norm())):
                return q
            bent = values.abs().clamp(min=1e-6 * float(stiffest)) + damping
            step = vectors @ (along / bent)
            if float(along.norm()) < 1e-9 * float(stiffest) and not is_stable:
                step = 1e-2 * vectors[:, 0] * (1 + q.norm())  # leave a saddle
            proposal = q - step
            new = mechanism.potential_energy(proposal)
            if float(new) <= float(value) + 1e-14 * abs(float(value)) or float(step.norm()) < 1e-13:
                q, value, damping = proposal, new, 0.3 * damping if damping > 1e-9 * float(bent.max()) else 0.0
                if float(step.norm()) < 1e-13 and is_stable:
                    return q
            else:
                damping = max(4 * damping, 0.1 * float(stiffest))
    raise ArithmeticError(
        f"A potential must have a minimum downhill of q = {start.tolist()}, but {max_iterations} steps led to "
        f"{q.tolist()} without one.\n  Start nearer to where the thing rests."
    )


def _is_same(mechanism: Mechanism, q: Tensor, other: Tensor, tolerance: float) -> bool:
    """Whether two rest states are one: close, a whole number of turns apart, or joined by a level way."""
    change = q - other
    periods = getattr(mechanism.potential, "periods", torch.full_like(change, torch.inf))
    turned = torch.where(torch.isfinite(periods), change - periods * (change / periods).round(), change)
    if float(turned.abs().max()) <= tolerance * (1 + float(q.abs().max())):
        return True
    hessian = mechanism.potential_hessian(other)
    stiffest, length = float(torch.linalg.eigvalsh(hessian).abs().max()), float(turned.norm())
    return float(turned @ hessian @ turned) <= 1e-6 * stiffest * length**2


def rest_states(mechanism: Mechanism, starts: Float[Tensor, "S d"], tolerance: float = 1e-3) -> Float[Tensor, "R d"]:
    """All different minima of V downhill from several starts, deepest first; starts that lead to none are skipped.

    Raises: ArithmeticError if no start leads to a minimum.
    """
    found: list[Tensor] = []
    failure: ArithmeticError | None = None
    for start in starts:
        try:
            q = rest_state(mechanism, start)
        except ArithmeticError as error:
            failure = error
            continue
        if not any(_is_same(mechanism, q, other, tolerance) for other in found):
            found.append(q)
    if not found and failure is not None:
        raise failure
    order = sorted(range(len(found)), key=lambda k: float(mechanism.potential_energy(found[k])))
    return torch.stack([found[k] for k in order])
