"""Analytic scenes with known physics, for tests of what is built on scenes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.metric import ConstantMetric
from lagsplat_ns.simulation.camera import PinholeCamera
from lagsplat_ns.types import Gaussians

WIDTH, HEIGHT = 64, 48


class Spring(nn.Module):
    """V = 1/2 k |q|^2 in two dimensions."""

    latent_dim = 2

    def __init__(self, stiffness: float) -> None:
        super().__init__()
        self.stiffness = stiffness

    def forward(self, q: Tensor) -> Tensor:
        return 0.5 * self.stiffness * (q**2).sum(-1)

    def gradient(self, q: Tensor) -> Tensor:
        return self.stiffness * q

    def hessian(self, q: Tensor) -> Tensor:
        return self.stiffness * torch.eye(2, dtype=q.dtype)


class Gravity(nn.Module):
    """V = a (1 - cos q) of a pendulum."""

    latent_dim = 1

    def __init__(self, strength: float) -> None:
        super().__init__()
        self.strength = strength

    def forward(self, q: Tensor) -> Tensor:
        return (self.strength * (1.0 - torch.cos(q))).sum(-1)

    def gradient(self, q: Tensor) -> Tensor:
        return self.strength * torch.sin(q)

    def hessian(self, q: Tensor) -> Tensor:
        return torch.diag_embed(self.strength * torch.cos(q))


class Friction(nn.Module):
    """C = c I."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, qd: Tensor, mass: Tensor) -> Tensor:
        return self.rate * torch.eye(qd.shape[-1], dtype=mass.dtype).expand(mass.shape)


@dataclass
class Path:
    times_s: Tensor
    q: Tensor
    qd: Tensor
    num_train: int


class FakeScene:
    """Moving Gaussians first, then a static background sheet behind them.

    `kind="pendulum"`: a rod and bob about a pivot, q the angle. `kind="mass"`: a disk that slides in the plane, q its
    two displacements. Both decay with rate `damping` and are recorded for two seconds at 30 frames per second.
    """

    def __init__(self, kind: str = "pendulum", damping: float = 0.2) -> None:
        self.kind = kind
        self.pivot = torch.tensor([0.0, 0.0, 0.55])
        if kind == "pendulum":
            radii = torch.cat([torch.linspace(0.05, 0.9, 18), 0.95 + 0.06 * torch.rand(12)])
            self.offsets = torch.stack([0.02 * torch.randn(30), torch.zeros(30), -radii], -1)
            potential, dim = Gravity(9.0), 1
        else:
            angle, radius = 2 * math.pi * torch.rand(30), 0.2 * torch.rand(30).sqrt()
            self.offsets = torch.stack([radius * angle.cos(), torch.zeros(30), radius * angle.sin()], -1)
            potential, dim = Spring(20.0), 2
        grid = torch.stack(torch.meshgrid(torch.linspace(-1, 1, 12), torch.linspace(-0.8, 0.8, 9), indexing="ij"), -1)
        self.sheet = torch.stack([grid[..., 0].ravel(), torch.full((108,), 0.5), grid[..., 1].ravel()], -1)
        self.is_moving = torch.arange(30 + 108) < 30
        self.colors = torch.rand(138, 3)
        self.latent_dim = dim
        self.mechanism = Mechanism(
            metric=ConstantMetric(torch.eye(dim, dtype=torch.float64)),
            potential=potential,
            damping=Friction(damping),
            inputs=None,
        )
        self.paths = [self._record(damping)]

    def _record(self, damping: float) -> Path:
        """The true motion, by many small steps of the classic Runge-Kutta method."""
        frames, fine = 60, 40
        h = 1 / (30 * fine)
        potential = self.mechanism.potential
        q = torch.tensor([0.6, -0.2][: self.latent_dim], dtype=torch.float64)
        y = torch.cat([q, torch.tensor([0.5, 1.0][: self.latent_dim], dtype=torch.float64)])
        d = self.latent_dim

        def slope(y: Tensor) -> Tensor:
            return torch.cat([y[d:], -potential.gradient(y[:d]) - damping * y[d:]])

        rows = [y]
        for _ in range(frames - 1):
            for _ in range(fine):
                a = slope(y)
                b = slope(y + h / 2 * a)
                c = slope(y + h / 2 * b)
                y = y + h / 6 * (a + 2 * b + 2 * c + slope(y + h * c))
            rows.append(y)
        table = torch.stack(rows)
        return Path(torch.arange(frames, dtype=torch.float64) / 30, table[:, :d], table[:, d:], frames)

    def means(self, q: Tensor) -> Tensor:
        if self.kind == "pendulum":
            c, s = torch.cos(q), torch.sin(q)
            x = c * self.offsets[:, 0] - s * self.offsets[:, 2]
            z = s * self.offsets[:, 0] + c * self.offsets[:, 2]
            moving = self.pivot + torch.stack([x, torch.zeros_like(x), z], -1)
        else:
            shift = torch.stack([q[..., 0], torch.zeros_like(q[..., 0]), q[..., 1]], -1)
            moving = self.offsets + shift[..., None, :]
        return torch.cat([moving, self.sheet.expand(*moving.shape[:-2], *self.sheet.shape)], -2)

    def jacobian(self, q: Tensor) -> Tensor:
        result = torch.zeros(138, 3, self.latent_dim)
        if self.kind == "pendulum":
            c, s = torch.cos(q), torch.sin(q)
            result[:30, 0, 0] = -s * self.offsets[:, 0] - c * self.offsets[:, 2]
            result[:30, 2, 0] = c * self.offsets[:, 0] - s * self.offsets[:, 2]
        else:
            result[:30, 0, 0] = result[:30, 2, 1] = 1.0
        return result

    def gaussians(self, q: Tensor) -> Gaussians:
        quats = torch.zeros(138, 4)
        quats[:, 0] = 1.0
        scales = torch.full((138, 3), math.log(0.05))
        scales[30:] = math.log(0.12)
        logits = torch.full((138,), 4.0)
        return Gaussians(self.means(q), quats, scales, logits, self.colors)


def filming_camera(width: int = WIDTH, height: int = HEIGHT) -> PinholeCamera:
    """The fixed camera on the -y axis that sees two scene units along the picture's larger side."""
    focal = 1.2 * max(width, height)
    distance = 2 * focal / max(width, height)
    matrix = torch.tensor([[1.0, 0, 0, 0], [0, 0, -1, -distance], [0, 1, 0, 0]], dtype=torch.float64)
    return PinholeCamera.from_angle(matrix, 2 * math.atan(0.5 * width / focal), width, height)
