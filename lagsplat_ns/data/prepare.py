"""Clips made ready for training, once: frames, background, moving pixels, optical flow and measured inputs."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import Bool, Float16, Float64, UInt8
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from lagsplat_ns.data.background import estimate_background, noise_level, sample_indices
from lagsplat_ns.data.cache import ArrayFile, cache_root, new_folder
from lagsplat_ns.data.errors import data_error
from lagsplat_ns.data.frames import FrameReader, fit_size
from lagsplat_ns.data.motion import FlowMeter, MovingPixels, camera_motion
from lagsplat_ns.data.sensors import SensorLog, find_sensor_file, read_measurements, read_sensors, shared_inputs
from lagsplat_ns.data.settings import MIN_FRAMES, VideoSettings, default_max_side
from lagsplat_ns.data.sources import ClipSource, find_sources
from lagsplat_ns.data.timing import order_frames

__all__ = ["PreparedClip", "load_prepared", "prepare_clips"]

_VERSION = 6  # raise it when prepared data changes its meaning
_META = "clip.json"
_MEASURED = "measurements.npz"
_said: set[str] = set()  # warnings that this process has printed: once is enough


@dataclass(frozen=True)
class PreparedClip:
    """A clip ready for training. Arrays are read from disk when they are touched."""

    frames: UInt8[np.ndarray, "T H W 3"]
    times_s: Float64[np.ndarray, " T"]
    """seconds since the first frame that is used, strictly increasing"""
    background: UInt8[np.ndarray, "H W 3"]
    masks: Bool[np.ndarray, "T H W"]
    """moving pixels"""
    flow: Float16[np.ndarray, "T-1 H W 2"]
    """forward optical flow (x right, y down), pixels"""
    image_paths: list[Path]
    """one PNG file per frame"""
    sensors: SensorLog | None
    num_train: int
    """frames before this one are for training, the others for testing"""
    source: Path
    folder: Path
    """the cache folder all of this lies in"""
    noise: float = 0.0
    """standard deviation of a static pixel, gray levels of 255"""
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """what was taken from the sensor log, and what was left out or mended"""
    measurements: SensorLog | None = None
    """quantities that were measured and do not act on the thing"""


def prepare_clips(path: Path, settings: VideoSettings | None = None, *, quiet: bool = False) -> list[PreparedClip]:
    """The clips at `path`, from the cache where they were prepared before with the same content and settings.

    Warnings and notes are printed unless `quiet`.

    Raises: DataError, MissingDataError.
    """
    settings = settings or VideoSettings()
    settings.check()
    console = Console(stderr=True, quiet=quiet)
    clips = []
    for source in find_sources(Path(path)):
        clip = _prepare(source, settings, console)
        for label, texts in (("[yellow]Warning:[/yellow]", clip.warnings), ("Note:", clip.notes)):
            for text in texts:
                console.print(f"{label} {escape(text)}", highlight=False, soft_wrap=True)
        if clips and clip.frames.shape[1:] != clips[0].frames.shape[1:]:
            first, this = clips[0].frames.shape, clip.frames.shape
            raise data_error(
                f"All clips must have one picture size, but {clip.source.name} has {this[2]} x {this[1]} pixels "
                f"(as prepared) and {clips[0].source.name} has {first[2]} x {first[1]}.",
                "Film all clips with one camera setting, or train on one of them: --data FILE.",
            )
        clips.append(clip)
    for text in shared_inputs([(clip.source.name, clip.sensors) for clip in clips])[1]:
        console.print(f"Note: {escape(text)}", highlight=False, soft_wrap=True)
    return clips


def load_prepared(folder: Path) -> PreparedClip:
    """The prepared clip in a cache folder."""
    folder = Path(folder)
    meta = json.loads((folder / _META).read_text())

    def mapped(name: str) -> np.ndarray:
        return np.load(folder / f"{name}.npy", mmap_mode="r")

    times_s = np.load(folder / "times_s.npy")
    return PreparedClip(
        frames=mapped("frames"),
        times_s=times_s,
        background=np.load(folder / "background.npy"),
        masks=mapped("masks"),
        flow=mapped("flow"),
        image_paths=[folder / "frames" / f"{k:05d}.png" for k in range(len(times_s))],
        sensors=SensorLog.load(folder / "sensors.npz") if (folder / "sensors.npz").is_file() else None,
        num_train=meta["num_train"],
        source=Path(meta["source"]),
        folder=folder,
        noise=meta["noise"],
        warnings=meta["warnings"],
        notes=meta["notes"],
        measurements=SensorLog.load(folder / _MEASURED) if (folder / _MEASURED).is_file() else None,
    )


def _prepare(source: ClipSource, settings: VideoSettings, console: Console) -> PreparedClip:
    is_wanted = settings.sensor_columns != ("none",) or settings.measurement_columns
    sensor_file = find_sensor_file(source) if is_wanted else None
    root = cache_root(source.folder, settings.cache_dir)
    folder = root / f"{source.path.stem}-{_key(source, sensor_file, settings)}"
    if not (folder / _META).is_file():
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
        progress = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
        with new_folder(folder) as partial, progress:
            _build(source, sensor_file, settings, partial, progress)
    return load_prepared(folder)


def _key(source: ClipSource, sensor_file: Path | None, settings: VideoSettings) -> str:
    """Digest of everything that the prepared data depends on."""
    used = {
        "version": _VERSION,
        "content": source.content_hash(),
        "sensors": None if sensor_file is None else hashlib.sha256(sensor_file.read_bytes()).hexdigest(),
        "columns": list(settings.sensor_columns),
        "measurements": list(settings.measurement_columns),
        "interpolation": settings.sensor_interpolation,
        "start": settings.start,
        "end": settings.end,
        "stride": settings.frame_stride,
        "side": settings.max_side or default_max_side(),
        "held_out": settings.held_out,
        "rotation": settings.rotation,
        "frame_rate": settings.frame_rate if source.pictures else None,
    }
    return hashlib.sha256(json.dumps(used, sort_keys=True).encode()).hexdigest()[:16]


def _build(
    source: ClipSource, sensor_file: Path | None, settings: VideoSettings, folder: Path, progress: Progress
) -> None:
    """Writes one clip's prepared data into an empty folder."""
    frames, times_s, offset_s, warnings = _decode(source, settings, folder, progress)
    num_frames = len(times_s)
    num_train = num_frames - round(settings.held_out * num_frames)
    if num_train < 4:
        raise data_error(
            f"At least 4 frames must be left for training, but {num_train} of {num_frames} are.",
            "Hold out a smaller share, or use more of the clip.",
        )

    notes: list[str] = []
    if sensor_file is not None:
        span = (offset_s, float(times_s[-1]))
        measured = settings.measurement_columns
        log, notes = read_sensors(sensor_file, settings.sensor_columns, settings.sensor_interpolation, *span, measured)
        if log is not None:
            log.save(folder / "sensors.npz")
        if measured:
            measurements, more = read_measurements(sensor_file, measured, *span)
            measurements.save(folder / _MEASURED)
            notes += more

    step = progress.add_task(f"{source.path.name}: background", total=3)
    chosen = sample_indices(num_train)
    samples = np.array(frames[chosen])
    noise = noise_level(samples, np.array(frames[np.minimum(chosen + 1, num_frames - 1)])) if num_train > 1 else 0.3
    progress.advance(step)
    background = estimate_background(samples, noise)
    progress.advance(step)
    motion = camera_motion(samples, chosen)
    if motion.is_moving:
        warnings.append(
            f"The camera should stand still, but the picture of {source.path.name} as a whole shifts by up to "
            f"{motion.shift_px:.1f} pixels (frame {motion.frame}; {motion.agreeing:.0%} of {motion.num_points} points "
            "all over the picture agree). Film from a tripod, or cut that part away with `start` and `end`."
        )
    moving = MovingPixels.fitted(background, samples, noise)
    progress.advance(step)

    _save_motion(frames, moving, folder, progress, source.path.name)
    share = np.load(folder / "masks.npy", mmap_mode="r")[:num_train].reshape(num_train, -1).mean(axis=1)
    if np.sum(share > 0) < 3:
        raise data_error(
            f"Something must move in a clip, but nothing in {source.path} does: "
            f"{np.sum(share > 0)} of {num_train} frames differ from the background by more than "
            f"{moving.base:.0f} of 255 gray levels (noise: {noise:.1f})." + "".join(f" {text}" for text in warnings),
            "Use a part in which the thing moves, fill more of the picture with it, or raise `max_side`.",
        )
    if np.mean(share > 0) < 0.7:
        warnings.append(
            f"Nothing moves in {np.sum(share == 0)} of {num_train} training frames of {source.path.name}: where the "
            "thing is absent or out of the picture there, cut that part away with `start` and `end`."
        )
    if np.median(share) > 0.5:
        warnings.append(
            f"More than half of the pixels of {source.path.name} move ({np.median(share):.0%} of a usual frame): "
            "the background behind the thing was never seen there."
        )

    np.save(folder / "times_s.npy", times_s)
    np.save(folder / "background.npy", background)
    cv2.imwrite(str(folder / "background.png"), background[..., ::-1])
    meta = {
        "source": str(source.path.resolve()),
        "num_train": num_train,
        "noise": noise,
        "warnings": warnings,
        "notes": notes,
    }
    (folder / _META).write_text(json.dumps(meta, indent=1))


def _decode(
    source: ClipSource, settings: VideoSettings, folder: Path, progress: Progress
) -> tuple[np.ndarray, Float64[np.ndarray, " T"], float, list[str]]:
    """Frames in use (a memory map of frames.npy), their times from 0, the time of the first on the clip's own clock."""
    max_side = settings.max_side or default_max_side()
    reader = FrameReader(source, settings.rotation, settings.frame_rate)
    task = progress.add_task(f"{source.path.name}: frames", total=None)
    raw, times, thumbnails, first, size = folder / "frames.raw", [], [], None, (0, 0)
    last = 0.0
    with raw.open("wb") as stream:
        for time_s, picture in reader:
            progress.update(task, total=reader.num_frames_hint, advance=1)
            first = time_s if first is None else first
            last = max(last, time_s - first)
            if not _is_inside(time_s - first, settings):
                continue
            size = fit_size(picture.shape[0], picture.shape[1], max_side)
            if size != picture.shape[:2]:
                picture = cv2.resize(picture, size[::-1], interpolation=cv2.INTER_AREA)
            stream.write(np.ascontiguousarray(picture).data)
            times.append(time_s - first)
            thumbnails.append(cv2.resize(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY), (32, 32), interpolation=3).ravel())
    if not times and last > 0:
        raise data_error(
            f"`start` and `end` must leave a part of the clip, but {source.path} lasts {last:.2f} s "
            f"and the part begins at {settings.start or 0.0:g} s.",
            "Give an earlier `start`.",
        )
    small = np.array(thumbnails, dtype=np.float32)
    order, times_s, warnings = order_frames(np.array(times), small, source.path.name)
    order, times_s = order[:: settings.frame_stride], times_s[:: settings.frame_stride]
    if len(order) < MIN_FRAMES:
        raise data_error(
            f"A clip must have at least {MIN_FRAMES} frames, but {source.path} has {len(order)} "
            f"(of {reader.num_frames_hint or len(times)} in the file, frame_stride {settings.frame_stride}).",
            "Use a longer part of the clip or a smaller `frame_stride`.",
        )
    shape = (len(times), *size, 3)
    stored = np.memmap(raw, dtype=np.uint8, mode="r", shape=shape)
    (folder / "frames").mkdir()
    with (
        ThreadPoolExecutor(1) as other_core,
        ArrayFile(folder / "frames.npy", (len(order), *shape[1:]), np.uint8) as out,
    ):
        written = other_core.map(
            _write_png, [folder / "frames" / f"{k:05d}.png" for k in range(len(order))], (stored[n] for n in order)
        )
        for number in order:
            out.append(stored[number])
        list(written)  # waits, and raises what a writer raised
    del stored
    raw.unlink()
    return (
        np.load(folder / "frames.npy", mmap_mode="r"),
        times_s - times_s[0],
        float(times_s[0]),
        reader.warnings + warnings,
    )


def _write_png(file: Path, picture: UInt8[np.ndarray, "H W 3"]) -> None:
    if not cv2.imwrite(str(file), picture[..., ::-1], [cv2.IMWRITE_PNG_COMPRESSION, 1]):
        raise OSError(f"{file} could not be written.\n  Check that the disk has room, or set `cache_dir`.")


def _is_inside(time_s: float, settings: VideoSettings) -> bool:
    return time_s >= (settings.start or 0.0) - 1e-6 and (settings.end is None or time_s <= settings.end + 1e-6)


def _save_motion(frames: np.ndarray, moving: MovingPixels, folder: Path, progress: Progress, name: str) -> None:
    """Writes masks.npy and flow.npy."""
    count, height, width = frames.shape[:3]
    meter = FlowMeter()
    with (
        ThreadPoolExecutor(1) as other_core,
        ArrayFile(folder / "masks.npy", (count, height, width), np.bool_) as masks,
        ArrayFile(folder / "flow.npy", (count - 1, height, width, 2), np.float16) as flow,
    ):
        for k in progress.track(range(count), description=f"{name}: moving pixels and flow"):
            frame = np.ascontiguousarray(frames[k])
            pending = other_core.submit(meter.next, frame)
            masks.append(moving.mask(frame))
            step = pending.result()
            if step is not None:
                flow.append(step)
