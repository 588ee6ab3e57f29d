"""MuJoCo with a way to draw pictures: on a screen where there is one, in software where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from typing import Any

__all__ = ["load_mujoco"]

_PROBE = (
    "import mujoco; m = mujoco.MjModel.from_xml_string('<mujoco/>'); d = mujoco.MjData(m); "
    "r = mujoco.Renderer(m, 16, 16); mujoco.mj_forward(m, d); r.update_scene(d); r.render(); r.close()"
)


@cache
def load_mujoco(*, for_pictures: bool = False) -> Any:
    """The mujoco module; with a working MUJOCO_GL where pictures are wanted.

    A MUJOCO_GL that is set is kept. Without one, and without a display, EGL is tried before OSMesa, each in a process
    of its own, since the choice is final once MuJoCo is imported.

    Raises: ModuleNotFoundError without MuJoCo, OSError if nothing can draw.
    """
    if for_pictures and "mujoco.gl_context" not in sys.modules and "MUJOCO_GL" not in os.environ:
        _choose_backend()
    try:
        import mujoco
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Clips with known physics are made with MuJoCo, which is not installed.\n"
            '  pip install "lagsplat-ns[bench]"',
            name=error.name,
        ) from error
    return mujoco


def _choose_backend() -> None:
    has_display = sys.platform != "linux" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if has_display:
        return
    try:
        import importlib.util

        if importlib.util.find_spec("mujoco") is None:
            return  # the import says what is missing
    except ValueError:
        return
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
            return
        failures.append(f"{backend}: {(run.stderr.strip().splitlines() or ['no message'])[-1]}")
    raise OSError(
        f"Pictures without a display need EGL or OSMesa, but neither works ({'; '.join(failures)}).\n"
        "  Install one: apt-get install libosmesa6, or apt-get install libegl1 libgl1-mesa-dri; "
        "MUJOCO_GL=egl or osmesa chooses by hand."
    )
