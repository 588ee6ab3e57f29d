"""Finding clips: a path given by a person becomes a list of video files or folders of pictures."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from lagsplat_ns.data.errors import MissingDataError, data_error

__all__ = ["ClipSource", "find_sources", "natural_key"]

VIDEO_SUFFIXES = frozenset(
    [
        ".mp4",
        ".m4v",
        ".mov",
        ".avi",
        ".mkv",
        ".webm",
        ".mpg",
        ".mpeg",
        ".mts",
        ".m2ts",
        ".ts",
        ".wmv",
        ".flv",
        ".3gp",
        ".ogv",
        ".gif",
        ".y4m",
        ".mxf",
    ]
)
PICTURE_SUFFIXES = frozenset([".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm"])
TIMES_FILE = "times.csv"


@dataclass(frozen=True)
class ClipSource:
    """One clip as it lies on disk: a video file, or pictures in their order with an optional table of times."""

    path: Path
    """the video file, or the folder of pictures"""
    pictures: tuple[Path, ...] = ()
    """the folder's pictures in natural order; empty for a video file"""
    times_file: Path | None = None

    @property
    def folder(self) -> Path:
        return self.path if self.pictures else self.path.parent

    def content_hash(self) -> str:
        """Digest of every byte that is read for this clip."""
        digest = hashlib.sha256()
        for file in self.pictures or (self.path,):
            digest.update(file.name.encode() if self.pictures else b"")
            _digest_file(digest, file)
        if self.times_file is not None:
            _digest_file(digest, self.times_file)
        return digest.hexdigest()


def natural_key(path: Path) -> list[tuple[int, int | str]]:
    """Sorting key that puts frame2 before frame10."""
    parts = re.split(r"(\d+)", path.name.lower())
    return [(0, int(part)) if part.isdigit() else (1, part) for part in parts]


def find_sources(path: Path) -> list[ClipSource]:
    """The clips at `path`: a file, a folder with one or several video files, or a folder of pictures.

    Raises: MissingDataError, DataError.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise MissingDataError(
            f"--data must name a video file or a folder, but there is nothing at {path}.\n"
            "  Check the spelling and the folder you are in."
        )
    if path.is_dir():
        return _sources_in_folder(path)
    if path.suffix.lower() in PICTURE_SUFFIXES:
        raise data_error(
            f"--data must name a video file or a folder, but {path} is a single picture.",
            f"For a folder of pictures give the folder: --data {path.parent}",
        )
    return [ClipSource(path)]


def _sources_in_folder(folder: Path) -> list[ClipSource]:
    files = sorted((f for f in folder.iterdir() if f.is_file() and not f.name.startswith(".")), key=natural_key)
    videos = [f for f in files if f.suffix.lower() in VIDEO_SUFFIXES]
    if videos:
        return [ClipSource(f) for f in videos]
    if any(f.name.startswith("transforms") and f.suffix == ".json" for f in files):
        raise data_error(
            f"This input takes video from one fixed camera, but {folder} holds posed pictures (transforms*.json).",
            "Choose a data parser for posed pictures, or give a folder of pictures without transforms*.json.",
        )
    pictures = tuple(f for f in files if f.suffix.lower() in PICTURE_SUFFIXES)
    if pictures:
        times_file = folder / TIMES_FILE
        return [ClipSource(folder, pictures, times_file if times_file.is_file() else None)]
    inside = "is empty" if not files else f"holds {len(files)} files, none of them a video or a picture"
    raise data_error(
        f"--data must hold a video file or pictures, but {folder} {inside}.",
        "Put one or several clips there (.mp4, .mov, .avi, .mkv, .webm, .gif, ...) or pictures (.png, .jpg, ...).",
    )


def _digest_file(digest: hashlib._Hash, file: Path) -> None:
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
