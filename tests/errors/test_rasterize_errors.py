"""The words of the renderer's errors, and what it does where gsplat's kernels or Numba's cache are missing."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from lagsplat_ns.compiling import pool
from lagsplat_ns.render import rasterize
from lagsplat_ns.render.rasterize import rasterization
from lagsplat_ns.render.scenes import random_scene


@pytest.fixture
def scene() -> dict[str, Any]:
    return random_scene(20, 20, 10, num_cameras=2).arguments()


def check(scene: dict[str, Any], **kwargs: Any) -> None:
    """The check of arguments without the test suite's own shape checker before it."""
    defaults = {"sh_degree": None, "backgrounds": None, "render_mode": "RGB", "rasterize_mode": "classic"}
    given = scene | kwargs
    tensors = {name: given[name] for name in ("means", "quats", "scales", "opacities", "colors", "viewmats", "Ks")}
    others = {name: given[name] for name in ("width", "height")} | defaults | kwargs
    rasterize._check_arguments(tensors, **{k: v for k, v in others.items() if k not in tensors})


@pytest.mark.parametrize("name", ["packed", "sparse_grad"])
def test_sparse_results_are_not_implemented(scene: dict[str, Any], name: str) -> None:
    with pytest.raises(NotImplementedError) as error:
        rasterization(**(scene | {name: True}))
    assert str(error.value) == (
        f"`{name}` must be False, but is True.\n  Only dense results are implemented: pass {name}=False."
    )


def test_tile_size(scene: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedError) as error:
        rasterization(**scene, tile_size=8)
    assert str(error.value) == "`tile_size` must be 16 on the CPU, but is 8.\n  Leave the argument out."


def test_absgrad_with_many_channels(scene: dict[str, Any]) -> None:
    scene["colors"] = torch.rand(20, 5)
    with pytest.raises(NotImplementedError) as error:
        rasterization(**scene, absgrad=True)
    assert str(error.value) == (
        "`absgrad` needs at most 4 channels on the CPU, but there are 5.\n"
        "  Render the other channels in a second call without absgrad."
    )


def test_double_precision(scene: dict[str, Any]) -> None:
    scene["scales"] = scene["scales"].double()
    with pytest.raises(TypeError) as error:
        rasterization(**scene)
    assert str(error.value) == "`scales` must be float32, but is torch.float64.\n  Pass scales.float()."


def test_wrong_number_of_scales(scene: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="`scales`") as error:
        check(scene, scales=torch.ones(19, 3))
    assert str(error.value) == (
        "`scales` must have the shape [20, 3] or [2, 20, 3], but has [19, 3].\n"
        "  N = 20 comes from `means` and C = 2 from `viewmats`: correct these or `scales`."
    )


def test_wrong_number_of_sets(scene: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"`means` must have the shape \[20, 3\] or \[2, 20, 3\], but has \[5, 20, 3\]"
    ):
        check(scene, means=torch.ones(5, 20, 3))


def test_missing_harmonics(scene: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="sh_degree") as error:
        check(scene, colors=torch.ones(20, 4, 3), sh_degree=2)
    assert str(error.value) == (
        "`sh_degree` must be 0 to 4 with (sh_degree + 1)² <= K, but is 2 with K = 4.\n"
        "  Lower it, or pass colors with 9 coefficients."
    )


def test_background_with_a_depth_channel(scene: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="backgrounds") as error:
        check(scene, backgrounds=torch.ones(2, 4), render_mode="RGB+D")
    assert str(error.value) == (
        "`backgrounds` must have the shape [2, 3], but has [2, 4].\n"
        "  Pass a row for each camera, without the depth channel: backgrounds.expand(2, 3)."
    )


def test_empty_image(scene: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="at least 1 x 1 pixels, but 0 x 10 was asked"):
        check(scene, width=0)


def test_unknown_mode(scene: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="`render_mode` must be one of RGB, D, ED, RGB\\+D, RGB\\+ED, but is 'depth'"):
        check(scene, render_mode="depth")
    with pytest.raises(ValueError, match="`rasterize_mode` must be one of classic, antialiased, but is 'fast'"):
        check(scene, rasterize_mode="fast")


def test_gsplat_for_cpu_tensors(scene: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match='backend="gsplat" needs CUDA tensors and gsplat\'s CUDA kernels') as error:
        rasterization(**scene, backend="gsplat")
    assert "the tensors are on cpu" in str(error.value)


def test_missing_kernels_on_cuda_are_said_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rasterize, "gsplat_is_usable", lambda: False)
    with pytest.warns(UserWarning, match="CUDA tensors are rendered by gsplat, but its CUDA kernels are missing here"):
        assert rasterize._takes_gsplat("auto", torch.device("cuda")) is False


def test_another_process_neither_compiles_again_nor_imports_gsplat_without_cuda(scene: dict[str, Any]) -> None:
    """The kernels that this process compiled or loaded are in the cache."""
    rasterization(**scene)
    code = (
        "import sys, torch; torch.cuda.is_available = lambda: False\n"
        "from lagsplat_ns.render.rasterize import rasterization\n"
        "from lagsplat_ns.render.scenes import random_scene\n"
        "rasterization(**random_scene(5, 8, 8).arguments())\n"
        "assert not [name for name in sys.modules if name.startswith('gsplat')]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""


def test_gsplat_is_called_once_for_each_set(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []

    def pretend(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs)
        return rasterization(*args, **kwargs, backend="cpu")

    monkeypatch.setattr(rasterize, "_call_gsplat", pretend)
    monkeypatch.setattr(rasterize, "_takes_gsplat", lambda backend, device: backend != "cpu")
    arguments = random_scene(60, 30, 20, num_cameras=3, is_moving=True).arguments()
    arguments |= {"backgrounds": torch.rand(3, 3), "colors": torch.rand(3, 60, 3), "opacities": torch.rand(3, 60)}
    colors, alphas, meta = rasterization(**arguments)
    assert len(calls) == 3
    expected_colors, expected_alphas, expected_meta = rasterization(**arguments, backend="cpu")
    assert torch.equal(colors, expected_colors)
    assert torch.equal(alphas, expected_alphas)
    for key in ("radii", "means2d", "depths", "conics", "opacities", "tiles_per_gauss"):
        assert torch.equal(meta[key], expected_meta[key])
    assert [m["means2d"].shape for m in meta["sets"]] == [(1, 60, 2)] * 3


def test_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAGSPLAT_RENDER_THREADS", "3")
    assert pool.default_num_threads() == 3
    monkeypatch.setenv("LAGSPLAT_RENDER_THREADS", "many")
    with pytest.raises(ValueError, match="LAGSPLAT_RENDER_THREADS") as error:
        pool.default_num_threads()
    assert str(error.value) == (
        "The environment variable LAGSPLAT_RENDER_THREADS must be a positive whole number, but is 'many'.\n"
        "  Set it to a number of threads, or unset it for one thread per core."
    )
    with pytest.raises(ValueError, match="`num_threads` must be at least 1, but is 0"):
        pool.set_num_threads(0)


def test_an_error_in_a_helper_thread_reaches_the_caller() -> None:
    def fail(counter: Any) -> None:
        raise ArithmeticError("in a kernel")

    with pytest.raises(ArithmeticError, match="in a kernel"):
        pool.ThreadPool().run(fail, 8, 3)


def test_a_forked_child_renders() -> None:
    code = (
        "import os, torch; torch.set_num_threads(1)\n"
        "from lagsplat_ns.compiling import pool\n"
        "from lagsplat_ns.render.rasterize import rasterization\n"
        "from lagsplat_ns.render.scenes import random_scene\n"
        "pool.set_num_threads(3)\n"
        "arguments = random_scene(500, 64, 64).arguments()\n"
        "expected = rasterization(**arguments)[0]\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if torch.equal(rasterization(**arguments)[0], expected) else 3)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)


def test_an_interrupted_trace_function_cannot_stop_a_rendering_halfway(scene: dict[str, Any]) -> None:
    """nerfstudio's viewer raises from a trace function at any line of Python."""
    inside: list[str] = []

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if os.sep + os.path.join("render", "cpu", "") in frame.f_code.co_filename:
            inside.append(frame.f_code.co_name)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        rasterization(**scene)
        restored = sys.gettrace()
    finally:
        sys.settrace(before)
    assert restored is trace
    assert not {"project", "run", "bin_tiles", "composite"} & set(inside)


def test_kernels_compile_without_a_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from numba.core import caching

    from lagsplat_ns.compiling.kernels import KernelGroup

    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])
    with pytest.warns(UserWarning, match="Compiled kernels are kept in a folder that can be written"):
        doubled = KernelGroup("a doubling", tmp_path, about_s=1).kernel(fastmath=False)(lambda x: 2 * x)
    assert doubled(21) == 42
