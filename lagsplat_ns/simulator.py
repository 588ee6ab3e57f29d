"""A trained scene as a simulator: seek, grab, step, render."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.dynamics.energy import total_energy
from lagsplat_ns.dynamics.equilibrium import rest_state
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.simulation.calibration import Calibration, load_calibration
from lagsplat_ns.simulation.camera import PinholeCamera
from lagsplat_ns.simulation.grip import Grip, grip_from_shares, picture_jacobian, pixel_shares, rasterize
from lagsplat_ns.simulation.held import SimulatedScene, held_motion
from lagsplat_ns.simulation.input_log import LoggedMotion, input_logs
from lagsplat_ns.simulation.pulls import PulledMotion
from lagsplat_ns.simulation.seen import SeenRange
from lagsplat_ns.simulation.stepping import Stepper
from lagsplat_ns.simulation.timeline import Timeline
from lagsplat_ns.types import Gaussians, State

__all__ = ["Grip", "PinholeCamera", "Simulator"]

Pair = tuple[float | int, float | int]


class Simulator:
    """A filmed thing that can be set to any time, pushed, stepped in either direction of time, and seen.

    Times are seconds since the clip's first frame. The dynamics run in double precision on the CPU, pictures are
    rendered where the scene's tensors are. Forces act in picture units: the larger side of a picture is two units long
    and the moving thing has unit mass; how many newtons that is, a clip alone cannot tell. With a `calibration` forces
    are newtons; `force_unit` says which.

    scene: the trained scene, used as it is and not copied; camera: the filming camera; integrator: how time passes, by
    default as the training was told (see `simulation.stepping.Stepper` for the names).
    """

    calibration: Calibration | None = None
    """newtons per picture unit of force, where a measured force or a known push told it"""

    def __init__(
        self, scene: SimulatedScene, camera: PinholeCamera, *, clip: int = 0, integrator: str | None = None
    ) -> None:
        if scene.mechanism is None:
            raise ValueError(
                "A scene must know its dynamics to be simulated, but this one was saved before they were found.\n"
                "  Train to the end: ns-train lagsplat --data PATH."
            )
        self.scene, self.filming_camera = scene, camera
        self.time_s = 0.0
        self._mechanism = copy.deepcopy(scene.mechanism).double().cpu().requires_grad_(False)
        self._edited = self._mechanism
        stepper = Stepper(method=integrator or getattr(getattr(scene, "spec", None), "integrator", "adaptive"))
        self._motion = PulledMotion(scene, stepper)
        logs = input_logs(scene) or [None] * len(scene.paths)
        self._timelines = [
            Timeline(p.times_s, p.q, p.qd, partial(self._advance_logged, LoggedMotion(log, stepper)))
            for p, log in zip(scene.paths, logs, strict=True)
        ]
        self.seen = SeenRange(scene.paths)
        self._rest_q = self._find_rest(self._mechanism)
        self._unit_of_energy = self._energy_unit(clip)
        self._state = State(self._rest_q.clone(), torch.zeros_like(self._rest_q))
        self.seek(self._timelines[clip].start_s, clip=clip)

    @classmethod
    def load(cls, config: str | Path) -> Simulator:
        """The simulator of a training, from the `config.yml` that nerfstudio wrote; the clip itself is not needed.

        Raises: FileNotFoundError if the file or its checkpoint is missing, ValueError for another method's training.
        """
        from lagsplat_ns.simulation.loading import load_scene

        scene, camera = load_scene(Path(config))
        sim = cls(scene, camera)
        sim.calibration = load_calibration(Path(config).parent)
        return sim

    # ---- where it is
    @property
    def state(self) -> State:
        """The present coordinates and rates, q [d] and qd [d] 1/s."""
        return self._state

    @property
    def clip_end_s(self) -> float:
        """Time of the last frame of the first clip, seconds."""
        return self._timelines[0].end_s

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the measured inputs that drive the thing, each with its unit."""
        names = tuple(getattr(getattr(self.scene, "spec", None), "input_names", ()))
        return names or tuple(f"input_{k}" for k in range(self._mechanism.num_inputs))

    @property
    def force_unit(self) -> str:
        """The unit of forces in `step`: "N" with a calibration, else "picture units"."""
        return "picture units" if self.calibration is None else "N"

    @property
    def is_outside_seen(self) -> bool:
        """Whether the thing is further out, or faster, than the clips showed it: what it does there is extrapolated."""
        return self.seen.is_outside(self._state)

    def rest(self) -> None:
        """Puts the thing at rest in its stable equilibrium; the clock goes to zero."""
        self._state = State(self._rest_q.clone(), torch.zeros_like(self._rest_q))
        self.time_s = 0.0

    def seek(self, t: float | int, *, clip: int = 0) -> None:
        """Puts the thing where it is `t` seconds after the clip's first frame.

        Inside the clip this is the recorded path; before its start and past its end the dynamics continue it. Measured
        inputs go on there as long as their log does, and are zero beyond it.

        Raises: ValueError for a time that is not finite or a clip that does not exist.
        """
        if not 0 <= clip < len(self._timelines):
            raise ValueError(
                f"`clip` must be one of the {len(self._timelines)} clips of this training, counted from 0, but is "
                f"{clip}.\n  Pass a smaller number."
            )
        self._state = self._timelines[clip].state(float(t))
        self.time_s = float(t)

    def means(self) -> Float[Tensor, "N 3"]:
        """Positions of all Gaussians now, scene units."""
        with torch.no_grad():
            return self.scene.means(self._scene_q(self._state.q))

    def energy(self) -> float:
        """Kinetic plus potential energy, zero at rest, relative to that at the clip's first frame."""
        return float(self._total_energy(self._edited, self._state) / self._unit_of_energy)

    # ---- touching it
    def grab(self, pixel: Pair, *, camera: PinholeCamera | None = None) -> Grip:
        """Takes hold of what a pixel shows now; empty where it shows the background.

        pixel: (x, y) in pixels of the camera's picture (default: the filming camera), origin top left.

        Raises: ValueError for a pixel outside the picture.
        """
        camera = self.filming_camera if camera is None else camera
        with torch.no_grad():
            gaussians = self.scene.gaussians(self._scene_q(self._state.q))
        gaussians = Gaussians(**{name: value.detach() for name, value in vars(gaussians).items()})
        pixel = (float(pixel[0]), float(pixel[1]))
        shares = pixel_shares(gaussians, camera, pixel)
        return grip_from_shares(shares, self.scene.is_moving, camera, pixel)

    def grip_jacobian(self, grip: Grip, q: Float[Tensor, " d"] | None = None) -> Float[Tensor, "2 d"]:
        """B(q): velocity of the held spot in the picture (x right, y down, picture units) per unit of qd.

        A force f on the grip is the generalized force B^T f.
        """
        q = self._state.q if q is None else q
        if grip.is_empty:
            return q.new_zeros(2, q.shape[-1])
        return picture_jacobian(grip, *held_motion(self.scene, grip.indices)(q))

    def grip_pixel(self, grip: Grip) -> tuple[float, float]:
        """Where the held spot is now in the grip's picture: the weighted mean of its Gaussians, pixels."""
        if grip.is_empty:
            return grip.pixel
        points, _ = held_motion(self.scene, grip.indices)(self._state.q)
        x, y = (grip.weights[:, None] * grip.camera.project(points)).sum(0).tolist()
        return x, y

    # ---- moving it
    def step(
        self,
        dt: float | int,
        forces: Sequence[tuple[Grip, Pair]] = (),
        inputs: Mapping[str, float | int] | None = None,
    ) -> None:
        """Lets `dt` seconds pass (dt < 0: runs back), with constant forces on grips and constant inputs.

        forces: pairs of a grip and (fx, fy), x right and y down in the picture, in `force_unit`. inputs: values by name
        and unit as in the sensor log; what is not named is zero.

        Raises: ValueError for numbers that are not finite or an unknown input; FloatingPointError if the motion cannot
        be followed. The state is then unchanged.
        """
        if not math.isfinite(dt):
            raise ValueError(f"`dt` must be a finite number of seconds, but is {dt}.\n  Pass for example 1/60.")
        pulls = [(grip, _checked_force(force) / self._newtons_per_unit) for grip, force in forces]
        vector = self._input_vector(inputs or {})
        self._state = self._motion.advance(self._edited, self._state, float(dt), pulls, vector)
        self.time_s += dt

    def edit(self, *, potential: float | int = 1.0, damping: float | int = 1.0) -> None:
        """Scales what was learned: forces from the potential (gravity, stiffness) and damping, each 1 as trained.

        The recorded path stays; everything outside the recording follows the edited physics.

        Raises: ValueError for a scale that is negative or not finite.
        """
        for name, scale in (("potential", potential), ("damping", damping)):
            if not (math.isfinite(scale) and scale >= 0.0):
                raise ValueError(
                    f"`{name}` must be a finite scale, zero or more, but is {scale}.\n"
                    "  Pass 1 for the physics as trained, 0.5 for half of it."
                )
        self._edited = self._mechanism.with_scales(potential=float(potential), damping=float(damping))
        for timeline in self._timelines:
            timeline.forget_rollouts()

    # ---- seeing it
    def render(self, camera: PinholeCamera | None = None) -> Float[Tensor, "H W 3"]:
        """The picture now, colors in [0, 1]; by default from the filming camera at its own size."""
        with torch.no_grad():
            gaussians = self.scene.gaussians(self._scene_q(self._state.q))
            return rasterize(gaussians, self.filming_camera if camera is None else camera).clamp(0.0, 1.0)

    def camera(
        self,
        world_from_camera: Tensor | Sequence[Sequence[float]],
        *,
        camera_angle_x: float,
        width: int,
        height: int,
    ) -> PinholeCamera:
        """A camera for `render` and `grab`: a camera-to-world matrix with OpenGL axes, the horizontal field of view in
        radians, and the size of the picture in pixels."""
        matrix = torch.as_tensor(world_from_camera, dtype=torch.float64)
        return PinholeCamera.from_angle(matrix, camera_angle_x, width, height)

    # ---- inside
    def _scene_q(self, q: Tensor) -> Tensor:
        return q.to(device=self.scene.is_moving.device, dtype=torch.float32)

    @property
    def _newtons_per_unit(self) -> float:
        return 1.0 if self.calibration is None else self.calibration.newtons_per_unit

    def _advance_logged(self, motion: LoggedMotion, state: State, dt: float, time_s: float) -> State:
        return motion.advance(self._edited, state, dt, time_s)

    def _input_vector(self, inputs: Mapping[str, float | int]) -> Tensor | None:
        names = self.input_names
        for name, value in inputs.items():
            if name not in names:
                known = ", ".join(names) if names else "none: it was trained without a sensor log"
                raise ValueError(f"`inputs` must name inputs of this training, but has {name!r}.\n  It knows {known}.")
            if not math.isfinite(value):
                raise ValueError(
                    f"Inputs must be finite numbers, but {name!r} is {value}.\n  Pass it in the unit of its name."
                )
        if not names:
            return None
        return torch.tensor([float(inputs.get(name, 0.0)) for name in names], dtype=torch.float64)

    def _find_rest(self, mechanism: Mechanism) -> Tensor:
        """The stable equilibrium nearest to where the clips end."""
        last = torch.as_tensor(self.scene.paths[0].q[-1]).detach().cpu().double()
        return rest_state(mechanism, last)

    def _total_energy(self, mechanism: Mechanism, state: State) -> Tensor:
        rest = State(self._rest_q, torch.zeros_like(self._rest_q))
        return total_energy(mechanism, state) - total_energy(mechanism, rest)

    def _energy_unit(self, clip: int) -> float:
        start = float(self._total_energy(self._mechanism, self._timelines[clip].state(self._timelines[clip].start_s)))
        return start if start > 0.0 else 1.0


def _checked_force(force: Pair) -> Tensor:
    pull = torch.as_tensor(force, dtype=torch.float64)
    if pull.shape != (2,) or not torch.isfinite(pull).all():
        raise ValueError(
            f"A force must be two finite numbers (fx, fy), but is {tuple(pull.reshape(-1).tolist())}.\n"
            "  Pass picture axes: x to the right, y down."
        )
    return pull
