"""The package as a nerfstudio plugin: entry points, and what happens to other methods when ours is broken."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest


def test_entry_points_resolve() -> None:
    (method,) = entry_points(group="nerfstudio.method_configs", name="lagsplat")
    (parser,) = entry_points(group="nerfstudio.dataparser_configs", name="lagsplat-video")
    (command,) = entry_points(group="console_scripts", name="lagsplat")
    specification = method.load()
    assert specification.config.method_name == "lagsplat"
    assert specification.description
    assert parser.load().description
    assert callable(command.load())


def test_unknown_names_of_the_plugin_are_refused() -> None:
    import lagsplat_ns.plugin as plugin

    with pytest.raises(AttributeError, match="has no attribute 'lagrange'"):
        _ = plugin.lagrange


def test_nerfstudio_lists_the_method_and_its_dataparser() -> None:
    from nerfstudio.configs.method_configs import all_descriptions, all_methods

    assert "lagsplat" in all_methods
    assert all_descriptions["lagsplat"]
    from nerfstudio.plugins.registry_dataparser import discover_dataparsers

    assert "lagsplat-video" in discover_dataparsers()[0]


def test_the_device_is_chosen_without_a_flag() -> None:
    import torch

    from lagsplat_ns.configs import lagsplat

    assert lagsplat.config.machine.device_type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_a_broken_part_leaves_other_methods_alone() -> None:
    """With one of our modules failing on import, nerfstudio still offers its own methods and says what is wrong."""
    code = (
        "import sys\n"
        "class Broken:\n"
        "    part = 'training.fit'\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == f'lagsplat_ns.{self.part}':\n"
        "            raise ImportError(f'{self.part} is broken')\n"
        "broken = Broken()\n"
        "sys.meta_path.insert(0, broken)\n"
        "from nerfstudio.configs.method_configs import all_methods\n"
        "assert 'splatfacto' in all_methods and 'nerfacto' in all_methods\n"
        "assert 'lagsplat' not in all_methods\n"
        "from nerfstudio.plugins.registry import discover_methods\n"
        "broken.part = 'data.video_dataparser'\n"
        "for name in [name for name in sys.modules if name.split('.')[0] == 'lagsplat_ns']:\n"
        "    del sys.modules[name]\n"
        "assert 'lagsplat' not in discover_methods()[0]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    said = " ".join(done.stdout.split())  # nerfstudio breaks lines
    assert "training.fit is broken" in said
    assert "data.video_dataparser is broken" in said
