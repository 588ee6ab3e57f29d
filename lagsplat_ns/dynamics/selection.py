"""How much physics the data can carry: terms of the potential and kinds of damping that are worth having."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.potential import PolynomialPotential

__all__ = ["drop_unsupported_terms", "recenter"]

_TIGHT = 1e-3


def recenter(mechanism: Mechanism, center: Tensor, samples: Tensor) -> None:
    """Expands a polynomial potential about another point, the rest state, where symmetric things need fewest terms.

    samples [T, d]: the path, on which old and new forces agree best.
    """
    potential = mechanism.potential
    assert isinstance(potential, PolynomialPotential)
    d = potential.latent_dim
    forces = potential.gradient(samples)
    kappa = float(potential.prior_scale) * float((potential.scale / (samples - center).abs().amax(0)).min()) ** -2
    potential.center.copy_(center)
    potential.scale.copy_((samples - center).abs().amax(0))
    rows, columns = torch.tril_indices(d, d)
    y, unit = (samples - center) / potential.scale, torch.eye(d, dtype=samples.dtype)
    design = []
    for i, j in zip(rows.tolist(), columns.tolist()):
        basis = unit[i][:, None] * unit[j]
        design.append((y @ (basis if i == j else basis + basis.T)) / potential.scale)
    design += list(potential.term_slopes(samples).unbind(-2))
    matrix = torch.stack(design, dim=-1).flatten(0, 1)
    spread = torch.cat([torch.full((len(rows),), 10.0 * kappa, dtype=y.dtype), potential.prior_of_term * kappa])
    size = forces.std()
    stacked = torch.cat([matrix * spread / (1e-4 * size), torch.eye(matrix.shape[1], dtype=y.dtype)])
    sides = torch.cat([forces.flatten() / (1e-4 * size), torch.zeros(matrix.shape[1], dtype=y.dtype)])
    solution = spread * torch.linalg.lstsq(stacked, sides[:, None]).solution[:, 0]
    stiffness = torch.zeros(d, d, dtype=y.dtype)
    stiffness[rows, columns] = solution[: len(rows)]
    stiffness = stiffness + stiffness.T - stiffness.diag().diag()
    values, vectors = torch.linalg.eigh(stiffness)
    values = values.clamp(min=0.02 * float(values.abs().max()))
    potential.prior_scale.fill_(float(values.max()))
    potential.stiffness_factor.copy_(torch.linalg.cholesky(vectors @ values.diag() @ vectors.T)[rows, columns])
    potential.weights.copy_(solution[len(rows) :])


def drop_unsupported_terms(mechanism: Mechanism, parameters: Tensor, information: Tensor, num_values: int) -> list[int]:
    """Terms of degree 3 and up that the data do not ask for, by a Wald test at the level of the BIC.

    parameters [n] and information [n, n] (inverse covariance, prior included) of a fit; num_values: fitted numbers. The
    highest degree that is not significant goes first, until all that stay are. Dropped terms get a prior so tight that
    they vanish. Returns their indices among the potential's weights.
    Source: Schwarz, "Estimating the dimension of a model", 1978; Wald statistic of a linear constraint.
    """
    potential = mechanism.potential
    assert isinstance(potential, PolynomialPotential)
    offset = (
        sum(part.parameter_vector().shape[0] for name, part in mechanism._free_parts().items() if name == "metric")
        + potential.stiffness_factor.shape[0]
    )
    degrees = potential.exponents.sum(-1).tolist()
    candidates = {k for k, degree in enumerate(degrees) if degree >= 3}
    level, dropped = math.log(num_values), []
    kept = list(range(parameters.shape[0]))
    values, matrix = parameters.clone(), information.clone()
    while True:
        covariance = torch.linalg.pinv(matrix, hermitian=True)
        position = {p: k for k, p in enumerate(kept)}
        weak = []
        for k in candidates:
            where = position[offset + k]
            statistic = float(values[where] ** 2 / covariance[where, where].clamp(min=1e-300))
            if statistic < level:
                weak.append((-degrees[k], statistic, k))
        if not weak:
            break
        chosen = min(weak)[2]
        where = position[offset + chosen]
        stay = [k for k in range(len(kept)) if k != where]
        # Conditional estimate of the others once this one is zero.
        values = values - covariance[:, where] / covariance[where, where] * values[where]
        values, matrix = values[stay], matrix[stay][:, stay]
        kept.pop(where)
        candidates.remove(chosen)
        dropped.append(chosen)
    if dropped:
        potential.prior_of_term[dropped] *= _TIGHT
        moved = torch.zeros_like(parameters)
        moved[kept] = values
        mechanism.set_vector(moved)
    return dropped
