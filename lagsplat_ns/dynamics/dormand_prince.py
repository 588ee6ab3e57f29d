"""The embedded Runge-Kutta pair of orders five and four, and the limits within which its step sizes are found.

Source: Dormand and Prince, "A family of embedded Runge-Kutta formulae", 1980.
"""

from __future__ import annotations

__all__ = ["ERROR", "NODES", "STAGES"]

STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
NODES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)

RELATIVE_TOLERANCE = 1e-8
ABSOLUTE_TOLERANCE = 1e-9
MAX_SUBSTEPS = 5_000
MAX_MAGNITUDE = 1e9
