"""Where prepared data is kept, and how a folder of it appears all at once or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

__all__ = ["ArrayFile", "cache_root", "new_folder"]

_PARTIAL = ".partial-"
_STALE_SECONDS = 24 * 3600.0


def cache_root(data_folder: Path, cache_dir: Path | None) -> Path:
    """The folder for prepared data: `cache_dir`, else `.lagsplat` beside the data, else a folder of the user's own."""
    if cache_dir is not None:
        root = Path(cache_dir).expanduser()
        root.mkdir(parents=True, exist_ok=True)
        return root.resolve()
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    user_temp = Path(tempfile.gettempdir()) / f"lagsplat-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
    for root in (data_folder / ".lagsplat", user_cache / "lagsplat"):
        if _make_writable(root):
            return root.resolve()
    user_temp.mkdir(parents=True, exist_ok=True)
    return user_temp.resolve()


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that becomes `folder` when the block ends well and vanishes when it does not.

    Where another process has finished the same folder meanwhile, its result stays.
    """
    _remove_stale(folder.parent)
    partial = Path(tempfile.mkdtemp(prefix=f"{_PARTIAL}{folder.name}-", dir=folder.parent))
    try:
        yield partial
        try:
            partial.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


class ArrayFile:
    """An .npy file written piece by piece along its first axis, without keeping it in memory."""

    def __init__(self, file: Path, shape: tuple[int, ...], dtype: type[np.generic]) -> None:
        self._shape, self._dtype, self._count = shape, np.dtype(dtype), 0
        self._stream = file.open("wb")
        header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._stream, header)

    def append(self, piece: np.ndarray) -> None:
        """Writes the next element of the first axis."""
        assert piece.shape == self._shape[1:]
        self._stream.write(np.ascontiguousarray(piece, dtype=self._dtype).tobytes())
        self._count += 1

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._stream.close()
        assert kind is not None or self._count == self._shape[0]


def _make_writable(root: Path) -> bool:
    """Whether files can be put into `root`, which is made if need be. A folder marked read-only is left alone."""
    parent = next(p for p in (root, *root.parents) if p.exists())
    if not parent.is_dir() or not parent.stat().st_mode & 0o222 or not os.access(parent, os.W_OK):
        return False
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            return True
    except OSError:
        return False


def _remove_stale(root: Path) -> None:
    """Removes what processes that were killed have left here long ago."""
    for partial in root.glob(f"{_PARTIAL}*"):
        try:
            if time.time() - partial.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(partial, ignore_errors=True)
        except OSError:
            continue
