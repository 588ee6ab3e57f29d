"""Rest states: the stable minima of a potential."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.dynamics.mechanism import Mechanism

__all__ = ["rest_state", "rest_states"]


def rest_state(mechanism: Mechanism, start: Float[Tensor, " d"], max_iterations: int = 200) -> Float[Tensor, " d"]:
    """The minimum of V downhill from `start`, by Newton steps where V is convex and damped ones elsewhere.

    Raises: ArithmeticError if no minimum is found.
    """
    q = start.detach().clone()
    potential = mechanism.potential
    with torch.enable_grad():
        value, damping = potential(q).detach(), 0.0
        for _ in range(max_iterations):
            gradient, hessian = potential.gradient(q).detach(), potential.hessian(q).detach()
            values, vectors = torch.linalg.eigh(hessian)
            if float(gradient.norm()) <= 1e-11 * float(values.abs().max() * (1 + q.norm())) and float(values[0]) > 0:
                return q
            bent = values.abs().clamp(min=1e-6 * float(values.abs().max())) + damping
            step = vectors @ ((vectors.T @ gradient) / bent)
            if float(gradient.norm()) < 1e-9 * float(values.abs().max()) and float(values[0]) <= 0:
                step = 1e-2 * vectors[:, 0] * (1 + q.norm())  # leave a saddle
            proposal = q - step
            new = potential(proposal).detach()
            if float(new) <= float(value) + 1e-14 * abs(float(value)) or float(step.norm()) < 1e-13:
                q, value, damping = proposal, new, 0.3 * damping if damping > 1e-9 * float(bent.max()) else 0.0
                if float(step.norm()) < 1e-13 and float(values[0]) > 0:
                    return q
            else:
                damping = max(4 * damping, 0.1 * float(values.abs().max()))
    raise ArithmeticError(
        f"A potential must have a minimum downhill of q = {start.tolist()}, but {max_iterations} steps led to "
        f"{q.tolist()} without one.\n  Start nearer to where the thing rests."
    )


def rest_states(mechanism: Mechanism, starts: Float[Tensor, "S d"], tolerance: float = 1e-3) -> Float[Tensor, "R d"]:
    """All different minima of V downhill from several starts, deepest first."""
    found: list[Tensor] = []
    for start in starts:
        q = rest_state(mechanism, start)
        if all(float((q - other).abs().max()) > tolerance * (1 + float(q.abs().max())) for other in found):
            found.append(q)
    order = sorted(range(len(found)), key=lambda k: float(mechanism.potential(found[k])))
    return torch.stack([found[k] for k in order])
