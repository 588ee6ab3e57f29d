"""The names and signatures that people build on."""

from __future__ import annotations

import inspect

import pytest

import lagsplat_ns
from lagsplat_ns.simulator import Simulator


def test_the_package_offers_exactly_this() -> None:
    assert sorted(lagsplat_ns.__all__) == ["Simulator", "__version__"]
    assert lagsplat_ns.Simulator is Simulator
    assert lagsplat_ns.__version__.count(".") == 2


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="module 'lagsplat_ns' has no attribute 'Simulation'"):
        _ = lagsplat_ns.Simulation  # type: ignore[attr-defined]


PARAMETERS = {
    "load": ["config"],
    "rest": ["self"],
    "seek": ["self", "t", "clip"],
    "grab": ["self", "pixel", "camera"],
    "step": ["self", "dt", "forces", "inputs"],
    "render": ["self", "camera"],
    "energy": ["self"],
    "means": ["self"],
    "camera": ["self", "world_from_camera", "camera_angle_x", "width", "height"],
    "edit": ["self", "potential", "damping"],
}


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_simulator_methods_keep_their_parameters(name: str) -> None:
    method = getattr(Simulator, name)
    assert list(inspect.signature(method).parameters) == PARAMETERS[name]
    assert method.__doc__


def test_simulator_offers_nothing_by_accident() -> None:
    public = {name for name in vars(Simulator) if not name.startswith("_")}
    properties = {"state", "clip_end_s", "input_names", "calibration", "force_unit", "is_outside_seen"}
    assert public == set(PARAMETERS) | properties | {"grip_jacobian", "grip_pixel"}
