"""How much physics the data can carry: terms of the potential and kinds of damping that are worth having."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.potential import PolynomialPotential

__all__ = ["drop_unsupported_terms", "recenter", "set_stiffness"]


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
    rows, columns = torch.tril_indices(d, d)[:, potential.free_stiffness]
    y, unit = (samples - center) / potential.scale, torch.eye(d, dtype=samples.dtype)
    design = []
    for i, j in zip(rows.tolist(), columns.tolist()):
        basis = unit[i][:, None] * unit[j]
        design.append((y @ (basis if i == j else basis + basis.T)) / potential.scale)
    design += list(potential.term_slopes(samples)[:, potential.free_weights].unbind(-2))
    if not design:  # everything turns: there is no expansion to move
        return
    matrix = torch.stack(design, dim=-1).flatten(0, 1)
    spread = torch.cat(
        [torch.full((len(rows),), 10.0 * kappa, dtype=y.dtype), potential.prior_of_term[potential.free_weights] * kappa]
    )
    size = forces.std()
    stacked = torch.cat([matrix * spread / (1e-4 * size), torch.eye(matrix.shape[1], dtype=y.dtype)])
    sides = torch.cat([forces.flatten() / (1e-4 * size), torch.zeros(matrix.shape[1], dtype=y.dtype)])
    solution = spread * torch.linalg.lstsq(stacked, sides[:, None]).solution[:, 0]
    stiffness = torch.zeros(d, d, dtype=y.dtype)
    stiffness[rows, columns] = solution[: len(rows)]
    potential.prior_scale.fill_(set_stiffness(potential, stiffness, 0.02))
    potential.weights[potential.free_weights] = solution[len(rows) :]


def set_stiffness(potential: PolynomialPotential, lower: Tensor, least: float) -> float:
    """Writes a stiffness given by its lower triangle [d, d], made positive definite; returns its largest eigenvalue.

    Eigenvalues are kept above the share `least` of the largest; coordinates without a spring stay without.
    """
    symmetric = lower + lower.T - lower.diag().diag()
    values, vectors = torch.linalg.eigh(symmetric)
    largest = float(values.abs().max())
    bounded = vectors @ values.clamp(min=max(least * largest, 1e-300)).diag() @ vectors.T
    rows, columns = torch.tril_indices(potential.latent_dim, potential.latent_dim)
    with torch.no_grad():
        factor = torch.linalg.cholesky(bounded)[rows, columns]
        potential.stiffness_factor.copy_(factor * potential.free_stiffness)
    return largest


def drop_unsupported_terms(mechanism: Mechanism, parameters: Tensor, information: Tensor, num_values: int) -> list[int]:
    """Terms of degree 3 and up that the data do not ask for, by a Wald test at the level of the BIC.

    parameters [n] and information [n, n] (inverse covariance, prior included) of a fit; num_values: fitted numbers. The
    highest degree that is not significant goes first, until all that stay are. Dropped terms are zero and no longer
    free. Returns their indices among the potential's weights.
    Source: Schwarz, "Estimating the dimension of a model", 1978; Wald statistic of a linear constraint.
    """
    potential = mechanism.potential
    assert isinstance(potential, PolynomialPotential)
    offset = sum(part.parameter_vector().shape[0] for name, part in mechanism._free_parts().items() if name == "metric")
    offset += int(potential.free_stiffness.sum())
    free = potential.free_weights.nonzero()[:, 0].tolist()
    place = {k: offset + index for index, k in enumerate(free)}
    degrees = potential.exponents.sum(-1).tolist()
    candidates = {k for k in free if k < len(degrees) and degrees[k] >= 3}
    level, dropped = math.log(num_values), []
    kept = list(range(parameters.shape[0]))
    values, matrix = parameters.clone(), information.clone()
    while True:
        covariance = torch.linalg.pinv(matrix, hermitian=True)
        position = {p: k for k, p in enumerate(kept)}
        weak = []
        for k in candidates:
            where = position[place[k]]
            statistic = float(values[where] ** 2 / covariance[where, where].clamp(min=1e-300))
            if statistic < level:
                weak.append((-degrees[k], statistic, k))
        if not weak:
            break
        chosen = min(weak)[2]
        where = position[place[chosen]]
        stay = [k for k in range(len(kept)) if k != where]
        # Conditional estimate of the others once this one is zero.
        values = values - covariance[:, where] / covariance[where, where] * values[where]
        values, matrix = values[stay], matrix[stay][:, stay]
        kept.pop(where)
        candidates.remove(chosen)
        dropped.append(chosen)
    if dropped:
        with torch.no_grad():
            potential.weights[dropped] = 0.0
        potential.free_weights[dropped] = False
        mechanism.set_vector(values)
    return dropped
