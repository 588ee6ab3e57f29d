"""Entry point of the `lagsplat` command."""

from __future__ import annotations

import sys
from typing import Annotated

import tyro

from lagsplat_ns.cli.bench import Bench
from lagsplat_ns.cli.calibrate import Calibrate
from lagsplat_ns.cli.camera_path import CameraPath
from lagsplat_ns.cli.demo import Demo
from lagsplat_ns.cli.fit_series import FitSeries
from lagsplat_ns.cli.rollout import Rollout

Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Rollout, tyro.conf.subcommand("rollout")]
    | Annotated[CameraPath, tyro.conf.subcommand("camera-path")]
    | Annotated[Calibrate, tyro.conf.subcommand("calibrate")]
    | Annotated[FitSeries, tyro.conf.subcommand("fit-series")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)

DESCRIPTION = "Physical, interactive splats from video: what nerfstudio's own ns-* commands do not offer."


def main(args: list[str] | None = None) -> None:
    """Runs one subcommand; what a user got wrong ends with its message instead of a stack trace."""
    command = tyro.cli(Command, args=args, prog="lagsplat", description=DESCRIPTION)
    try:
        command.main()
    except (ValueError, OSError, FloatingPointError, ModuleNotFoundError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
