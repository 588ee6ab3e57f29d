"""What can be wrong with the data a person brings. Every message says what must hold, what came, and what to do."""

from __future__ import annotations

__all__ = ["DataError", "MissingDataError", "data_error"]


class DataError(ValueError):
    """The data cannot be used as it is."""


class MissingDataError(DataError, FileNotFoundError):
    """There is no data at the given path."""


def data_error(problem: str, remedy: str) -> DataError:
    """A `DataError` in this package's layout: the requirement and what came on one line, what to do on the next."""
    return DataError(f"{problem}\n  {remedy}")
