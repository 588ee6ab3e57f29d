"""Which part of the package may import which, and that importing the package costs nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import lagsplat_ns

PACKAGE = Path(lagsplat_ns.__file__).parent

# Each part may import itself and what is listed: arrows point one way.
ALLOWED = {
    "types": set(),
    "compiling": set(),
    "dynamics": {"types", "compiling"},
    "render": {"types", "compiling"},
    "data": {"types"},
    "examples": {"types"},
    "gaussians": {"types", "dynamics"},
    "training": {"types", "dynamics", "gaussians", "render", "data"},
    "methods": {"types", "dynamics", "gaussians", "render", "data", "training", "simulation", "viewer"},
    "simulation": {"types", "dynamics", "gaussians", "render"},
    "simulator": {"types", "dynamics", "gaussians", "render", "simulation"},
    "viewer": {"types", "dynamics", "gaussians", "render", "simulation", "simulator"},
    "configs": {"methods", "data"},
    "plugin": set(),
    "evaluation": {"simulator"},
    "bench": {"types", "dynamics", "simulation", "simulator", "evaluation"},
    "cli": {
        "bench",
        "evaluation",
        "types",
        "compiling",
        "dynamics",
        "gaussians",
        "render",
        "data",
        "examples",
        "simulation",
        "simulator",
        "methods",
        "configs",
    },
    "__init__": {"simulator"},
}
NERFSTUDIO_ONLY_IN = ("configs", "methods", "viewer", "cli", "data.video_dataparser", "data.datamanager")
GSPLAT_ONLY_IN = ("render.rasterize",)

MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def imports(path: Path) -> set[str]:
    """Full names of all modules that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the arrows; write the full name"
            module = node.module or ""
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names if module == "lagsplat_ns"}
    return found


@pytest.mark.parametrize("module", sorted(MODULES))
def test_arrows_point_one_way(module: str) -> None:
    part = module.split(".")[0]
    assert part in ALLOWED, f"{module} belongs to no known part: add it to ALLOWED with what it may import"
    for name in imports(MODULES[module]):
        pieces = name.split(".")
        if pieces[0] != "lagsplat_ns" or len(pieces) == 1:
            continue
        target = pieces[1]
        if target in ("__version__", "Simulator"):
            continue
        assert target == part or target in ALLOWED[part], f"{module} must not import {name}"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_hosts_are_imported_at_the_border_only(module: str) -> None:
    roots = {name.split(".")[0] for name in imports(MODULES[module])}
    if "nerfstudio" in roots:
        assert module.startswith(NERFSTUDIO_ONLY_IN), f"{module} must not import nerfstudio"
    if "gsplat" in roots:
        assert module.startswith(GSPLAT_ONLY_IN), f"{module} must not import gsplat: use render.rasterize"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_module_says_what_it_is(module: str) -> None:
    path = MODULES[module]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if tree.body:
        assert ast.get_docstring(tree), f"{module} has no docstring"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_files_can_be_read_in_one_sitting(module: str) -> None:
    assert len(MODULES[module].read_text(encoding="utf-8").splitlines()) <= 400


def test_importing_the_package_is_cheap() -> None:
    """nerfstudio imports it while its own registries are half built, and every ns-* command pays for it."""
    code = (
        "import sys, lagsplat_ns; "
        "heavy = {'torch', 'numpy', 'nerfstudio', 'gsplat', 'numba', 'av', 'scipy', 'tyro'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PACKAGE.parent)


def test_the_command_line_shows_its_help_without_torch() -> None:
    code = (
        "import sys\n"
        "from lagsplat_ns.cli.main import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit as end:\n    assert end.code in (0, None), end.code\n"
        "assert 'nerfstudio' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PACKAGE.parent, stdout=subprocess.DEVNULL)
