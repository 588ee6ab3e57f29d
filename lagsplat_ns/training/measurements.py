"""Measured quantities against the learned coordinates: what a sensor says that the pictures did not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from lagsplat_ns.data.sensors import SensorLog

__all__ = ["MeasurementCheck", "check_measurements"]

_FORMS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "affine in q": lambda q, qd: q,
    "quadratic in q": lambda q, qd: np.concatenate([q, _products(q)], axis=1),
    "affine in q and q'": lambda q, qd: np.concatenate([q, qd], axis=1),
}
_CLEARLY_BETTER = 0.8


@dataclass(frozen=True)
class MeasurementCheck:
    """One measured column as a function of the coordinates, fitted on training frames alone.

    form: which function; correlation and error (root mean square over the range) on held-out frames, with q read off
    their pictures; forecast_error: the same with the forecast q. None without held-out frames.
    """

    name: str
    unit: str
    form: str
    train_correlation: float
    train_error: float
    correlation: float | None
    error: float | None
    forecast_error: float | None


@dataclass(frozen=True)
class Frames:
    """Coordinates of some frames of one clip: times_s [F], q and qd [F, d], seconds and 1/s."""

    times_s: Float64[np.ndarray, " F"]
    q: Float[np.ndarray, "F d"]
    qd: Float[np.ndarray, "F d"]


def check_measurements(
    logs: Sequence[SensorLog | None],
    train: Sequence[Frames],
    seen: Sequence[Frames | None],
    forecast: Sequence[Frames | None],
) -> list[MeasurementCheck]:
    """Every measured column against q: one function for all clips of the thing.

    logs: what was measured, per clip; train, seen, forecast: the training frames, the held-out frames as read off the
    pictures and as forecast, per clip.
    """
    logged = [(k, log) for k, log in enumerate(logs) if log is not None]
    if not logged:
        return []
    result = []
    for name, unit in zip(logged[0][1].names, logged[0][1].units, strict=True):
        with_column = [(k, log.picked((name,))) for k, log in logged if name in log.names]

        def gathered(
            frames: Sequence[Frames | None], with_column: list = with_column
        ) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
            parts = [(f, log.at(f.times_s)[:, 0]) for k, log in with_column if (f := frames[k]) is not None]
            if not parts:
                return None
            q, qd = (np.concatenate([getattr(f, key) for f, _ in parts]) for key in ("q", "qd"))
            return q, qd, np.concatenate([values for _, values in parts])

        fitted = gathered(train)
        assert fitted is not None
        form = _best_form(*fitted)
        coefficients = _regression(form, *fitted)
        span = max(float(np.ptp(fitted[2])), 1e-12)

        def figures(
            rows: tuple[np.ndarray, np.ndarray, np.ndarray] | None,
            form: str = form,
            coefficients: np.ndarray = coefficients,
            span: float = span,
        ) -> tuple[float | None, float | None]:
            if rows is None or len(rows[2]) < 2:
                return None, None
            guess = _design(form, rows[0], rows[1]) @ coefficients
            return _correlation(guess, rows[2]), float(np.sqrt(np.mean((guess - rows[2]) ** 2)) / span)

        here, ahead, later = figures(fitted), figures(gathered(seen)), figures(gathered(forecast))
        result.append(MeasurementCheck(name, unit, form, here[0] or 0.0, here[1] or 0.0, *ahead, later[1]))
    return result


def _products(q: np.ndarray) -> np.ndarray:
    rows, columns = np.tril_indices(q.shape[1])
    return q[:, rows] * q[:, columns]


def _design(form: str, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
    columns = _FORMS[form](q, qd)
    return np.concatenate([columns, np.ones((len(q), 1))], axis=1)


def _regression(form: str, q: np.ndarray, qd: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.linalg.lstsq(_design(form, q, qd), values, rcond=None)[0]


def _best_form(q: np.ndarray, qd: np.ndarray, values: np.ndarray) -> str:
    """The simplest form unless another explains the last fifth, fitted without it, clearly better."""
    cut = max(int(0.8 * len(values)), 2)
    errors = {}
    for form in _FORMS:
        coefficients = _regression(form, q[:cut], qd[:cut], values[:cut])
        errors[form] = float(np.sqrt(np.mean((_design(form, q[cut:], qd[cut:]) @ coefficients - values[cut:]) ** 2)))
    first = next(iter(_FORMS))
    best = min(errors, key=lambda form: errors[form])
    return best if errors[best] < _CLEARLY_BETTER * errors[first] else first


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    spread = float(a.std() * b.std())
    return float(np.mean((a - a.mean()) * (b - b.mean())) / spread) if spread > 0 else 0.0
