"""How many newtons a push is: the one factor that a clip alone cannot tell, beside the training that it belongs to."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["CALIBRATION_FILE", "Calibration", "load_calibration", "save_calibration"]

CALIBRATION_FILE = "calibration.json"


@dataclass(frozen=True)
class Calibration:
    """Newtons per picture unit of force: mass of the moving thing in kg times the meters of one picture unit.

    source: where the factor comes from, in words. meters_per_unit: length of a picture unit (half the larger side of
    the picture), where it is known.

    Raises: ValueError for a factor that is not positive.
    """

    newtons_per_unit: float
    source: str
    meters_per_unit: float | None = None

    def __post_init__(self) -> None:
        for name in ("newtons_per_unit", "meters_per_unit"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0.0):
                raise ValueError(
                    f"`{name}` must be a positive number, but is {value}.\n"
                    "  A push and its answer must point the same way: check the signs of both (x right, y down)."
                )

    @property
    def kilograms(self) -> float | None:
        """Mass of the moving thing, where a length is known."""
        return None if self.meters_per_unit is None else self.newtons_per_unit / self.meters_per_unit


def save_calibration(calibration: Calibration, folder: Path) -> Path:
    """Writes the file that `load_calibration` reads."""
    file = folder / CALIBRATION_FILE
    file.write_text(json.dumps(asdict(calibration), indent=2) + "\n")
    return file


def load_calibration(folder: Path) -> Calibration | None:
    """The calibration in a training's folder, if there is one.

    Raises: ValueError if the file is not what `save_calibration` writes.
    """
    file = folder / CALIBRATION_FILE
    if not file.is_file():
        return None
    try:
        return Calibration(**json.loads(file.read_text()))
    except (TypeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"A calibration must be what `lagsplat calibrate` writes, but {file} is not ({error}).\n"
            "  Remove the file, or calibrate again."
        ) from error
