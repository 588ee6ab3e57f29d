"""Every command that the README prints: parsed by the program it names, or run by a test that is named here."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import tyro

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.strip().splitlines()]
QUICK_START = ["pip install . && lagsplat demo", 'pip install ".[test]" && python -m pytest']

# commands of nerfstudio that tests/e2e/ runs, with the options printed in the README
RUN_END_TO_END = {
    "ns-train lagsplat": ["--data", "--vis"],
    "ns-eval": ["--load-config", "--output-path"],
    "ns-export gaussian-splat": ["--load-config", "--output-dir"],
    "ns-render camera-path": ["--load-config", "--camera-path-filename", "--output-path"],
}


def test_the_quick_start_is_exactly_two_commands() -> None:
    assert COMMANDS[:2] == QUICK_START
    section = README.split("## Quick start")[1].split("\n## ")[0]
    assert len(re.findall(r"```bash", section)) == 2


def test_pictures_are_there() -> None:
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README)
    assert pictures
    for picture in pictures:
        path = Path(__file__).parents[1] / picture
        assert path.is_file()
        assert path.stat().st_size < 300_000


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("lagsplat ")])
def test_our_commands_are_understood(command: str) -> None:
    from lagsplat_ns.cli.main import Command

    parsed = tyro.cli(Command, args=shlex.split(command)[1:])
    assert callable(parsed.main)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("ns-")])
def test_nerfstudio_commands_are_those_that_are_run_end_to_end(command: str) -> None:
    if command == "ns-viewer --load-config CONFIG":
        return  # started by tests/e2e/test_lagsplat.py
    end_to_end = "".join(path.read_text() for path in (Path(__file__).parent / "e2e").glob("*.py"))
    for name, options in RUN_END_TO_END.items():
        if command.startswith(name):
            used = [word for word in shlex.split(command) if word.startswith("--")]
            assert sorted(used) == sorted(options)
            assert all(f'"{option}"' in end_to_end for option in options)
            return
    raise AssertionError(f"{command!r} is in the README but no test runs it")


def test_every_command_is_covered() -> None:
    assert all(c in QUICK_START or c.startswith(("lagsplat ", "ns-")) for c in COMMANDS)


OPTIONS = re.findall(r"^\| `(--pipeline[^`]*|--vis[^`]*|lagsplat-video [^`]*)`", README, flags=re.MULTILINE)


def test_training_options_in_the_table_exist() -> None:
    """Parsed by nerfstudio's own parser, all in one training command."""
    first = [word for option in OPTIONS if not option.startswith("lagsplat-video") for word in shlex.split(option)]
    second = [word for o in OPTIONS if o.startswith("lagsplat-video") for word in shlex.split(o)[1:]]
    arguments = ["lagsplat", "--data", "my_clip.mp4", *first, "lagsplat-video", *second]
    code = (
        "import sys, tyro\n"
        "from nerfstudio.configs.method_configs import AnnotatedBaseConfigUnion\n"
        "config = tyro.cli(AnnotatedBaseConfigUnion, args=sys.argv[1:])\n"
        "assert config.method_name == 'lagsplat'\n"
        "assert config.pipeline.model.latent_dim == 2\n"
        "assert config.pipeline.datamanager.dataparser.end == 6.0\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, *arguments], check=True)


def test_the_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the analytic pendulum in place of a training."""
    from lagsplat_ns.simulator import Simulator
    from tests.fake_scenes import FakeScene, filming_camera

    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    simulator = Simulator(FakeScene(), filming_camera(256, 256))
    monkeypatch.setattr(Simulator, "load", lambda config: simulator)
    variables: dict = {}
    exec(compile(example, "README.md", "exec"), variables)  # our own file
    assert variables["frame"].shape == (256, 256, 3)
    assert not variables["grip"].is_empty
    assert variables["sim"].time_s == pytest.approx(1.0)
