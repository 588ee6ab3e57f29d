"""Parts of a mechanism and their free parameters as one flat vector, alone or as a whole batch of vectors."""

from __future__ import annotations

import copy
from typing import Protocol, TypeVar, no_type_check, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

ModuleType = TypeVar("ModuleType", bound=nn.Module)


@runtime_checkable
class Metric(Protocol):
    """What a metric must offer: the inertia of the coordinates and the force that its curvature causes."""

    def mass_matrix(self, q: Tensor) -> Tensor: ...

    def coriolis_force(self, q: Tensor, qd: Tensor) -> Tensor: ...


@runtime_checkable
class HasFreeParameters(Protocol):
    """A part whose parameters the identification may move.

    `parameter_vector()` is [n]; `with_vector(values [*batch, n])` is a copy of the part that broadcasts its batch
    against the batch of q; `parameter_prior()` is (mean [n], standard deviation [n]).
    """

    def parameter_vector(self) -> Tensor: ...

    def with_vector(self, values: Tensor) -> nn.Module: ...

    def parameter_prior(self) -> tuple[Tensor, Tensor]: ...


def replaced(module: ModuleType, **tensors: Tensor) -> ModuleType:
    """A shallow copy of a module in which some parameters or buffers are other tensors, of any batch shape."""
    result = copy.copy(module)
    result._parameters = dict(module._parameters)
    result._buffers = dict(module._buffers)
    for name, value in tensors.items():
        result._parameters.pop(name, None)
        result._buffers[name] = value
    return result


@no_type_check  # in the innermost loop
def solve_positive_definite(matrix: Float[Tensor, "*B d d"], vector: Float[Tensor, "*B d"]) -> Float[Tensor, "*B d"]:
    """matrix^-1 vector for small symmetric positive definite matrices; closed form for d <= 2, where it matters."""
    d = vector.shape[-1]
    if d == 1:
        return vector / matrix[..., 0]
    if d == 2:
        a, b, c = matrix[..., 0, 0], matrix[..., 0, 1], matrix[..., 1, 1]
        x, y = vector[..., 0], vector[..., 1]
        return torch.stack([c * x - b * y, a * y - b * x], dim=-1) / (a * c - b * b)[..., None]
    return torch.linalg.solve(matrix, vector)


@no_type_check  # in the innermost loop
def multiply(matrix: Float[Tensor, "*A i j"], vector: Float[Tensor, "*C j"]) -> Float[Tensor, "*D i"]:
    """matrix @ vector with broadcasting batches; faster than matmul for the tiny matrices met here."""
    return (matrix * vector[..., None, :]).sum(-1)


@no_type_check  # in the innermost loop
def lower_triangle(entries: Float[Tensor, "*B n"], d: int) -> Float[Tensor, "*B d d"]:
    """A lower triangular matrix from its d (d + 1) / 2 entries, row by row."""
    if d == 1:
        return entries[..., None]
    rows, columns = torch.tril_indices(d, d)
    result = entries.new_zeros(*entries.shape[:-1], d, d)
    result[..., rows, columns] = entries
    return result
