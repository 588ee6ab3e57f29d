"""MuJoCo with a way to draw pictures: on a screen where there is one, in software where there is none."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from typing import Any

__all__ = ["load_mujoco", "new_renderer"]

_log = logging.getLogger(__name__)

_ADVICE = (
    "Install one: apt-get install libosmesa6, or apt-get install libegl1 libgl1-mesa-dri; "
    "MUJOCO_GL=egl or osmesa chooses by hand."
)
_PROBE = (
    "import mujoco; m = mujoco.MjModel.from_xml_string('<mujoco/>'); d = mujoco.MjData(m); "
    "r = mujoco.Renderer(m, 16, 16); mujoco.mj_forward(m, d); r.update_scene(d); r.render(); r.close()"
)


def load_mujoco(*, for_pictures: bool = False) -> Any:
    """The mujoco module, imported with a MUJOCO_GL that can draw where there is one.

    A MUJOCO_GL that is set is kept. Without one, and without a display, EGL is tried before OSMesa, each in a process
    of its own, since the choice is final once MuJoCo is imported.

    Raises: ModuleNotFoundError without MuJoCo, OSError if pictures are wanted and nothing can draw.
    """
    failures = _choose_backend() if "mujoco" not in sys.modules or for_pictures else ()
    try:
        import mujoco
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Clips with known physics are made with MuJoCo, which is not installed.\n"
            '  pip install "lagsplat-ns[bench]"',
            name=error.name,
        ) from error
    if mujoco.get_mju_user_warning() is None:  # else it writes MUJOCO_LOG.TXT where the command was started
        mujoco.set_mju_user_warning(_log.warning)
    if for_pictures and failures:
        raise OSError(
            f"Pictures without a display need EGL or OSMesa, but neither works ({'; '.join(failures)}).\n  {_ADVICE}"
        )
    return mujoco


def new_renderer(model: Any, width: int, height: int) -> Any:
    """MuJoCo's renderer for pictures of a size in pixels.

    Raises: OSError if it cannot draw, for example since MuJoCo was imported before MUJOCO_GL was chosen.
    """
    mujoco = load_mujoco(for_pictures=True)
    try:
        return mujoco.Renderer(model, height, width)
    except Exception as error:  # every backend has errors of its own
        backend = os.environ.get("MUJOCO_GL", "the default for screens")
        raise OSError(
            f"MuJoCo must be able to draw, but its backend ({backend}) cannot: {type(error).__name__}: {error}.\n"
            f"  {_ADVICE} Where other code imports MuJoCo first, set it before."
        ) from error


@cache
def _choose_backend() -> tuple[str, ...]:
    """Sets MUJOCO_GL where it is needed; what went wrong with every candidate if none works."""
    has_display = sys.platform != "linux" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if has_display or "MUJOCO_GL" in os.environ or "mujoco" in sys.modules or find_spec("mujoco") is None:
        return ()
    failures = []
    for backend in ("egl", "osmesa"):
        run = subprocess.run(
            [sys.executable, "-c", _PROBE],
            env={**os.environ, "MUJOCO_GL": backend},
            capture_output=True,
            text=True,
            timeout=120,
        )
        if run.returncode == 0:
            os.environ["MUJOCO_GL"] = backend
            return ()
        failures.append(f"{backend}: {(run.stderr.strip().splitlines() or ['no message'])[-1]}")
    return tuple(failures)
