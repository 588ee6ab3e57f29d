"""Constants and small functions that the kernels share."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types

from lagsplat_ns.render.cpu.compile import device_function

intrinsic: Any = extending.intrinsic

f32 = np.float32
i32 = np.int32

TILE = 16  # pixels along a tile's side, and lanes in a row
BLOCK = 256  # Gaussians per ticket
CHANNELS = 4  # channels per pass: RGB + depth

# gsplat's thresholds (rasterize_to_pixels_fwd.cu)
MAX_ALPHA = f32(0.999)
MIN_ALPHA = f32(1 / 255)
MIN_TRANSMITTANCE = f32(1e-4)
LOG2_MIN_ALPHA = f32(-7.994353436858858)

LOG2_E = f32(1.4426950408889634)
ZERO, HALF, ONE, TWO = f32(0), f32(0.5), f32(1), f32(2)

# Columns of the record [16] of a Gaussian in an image: one cache line
X, Y = 0, 1  # center in pixels
QXX, QXY, QYY = 2, 3, 4  # log2 alpha = QXX dx² + QXY dx dy + QYY dy² + LOG2_OPACITY
LOG2_OPACITY = 5
REACH_X, REACH_Y = 6, 7  # half sides of the box around the contour alpha = 1/255, in pixels
COLOR = 8  # ... 11
TILE_X0, TILE_X1, TILE_Y0, TILE_Y1 = 12, 13, 14, 15  # half-open ranges of tiles

# Columns of the record [12] of an intersection's gradient
GRAD_COLOR = 0  # ... 3
GRAD_X, GRAD_Y = 4, 5
GRAD_CONIC = 6  # ... 8
GRAD_LOG_OPACITY = 9
GRAD_ABS_X, GRAD_ABS_Y = 10, 11
GRAD_COLUMNS = 12

# Minimax polynomial of 2^f on [-1/2, 1/2]: relative error below 2e-7
_E0, _E1, _E2, _E3, _E4, _E5 = (
    f32(c)
    for c in (
        1.0000000716543536,
        0.6931469670544326,
        0.2402211972491559,
        0.05550713290360559,
        0.009675541291253335,
        0.0013276466542153401,
    )
)


@intrinsic
def _float_from_bits(typing_context, bits):
    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@device_function
def exp2(t):
    """2^t for t in [-126, 127], without a branch or a call, so that loops over it become vector code."""
    whole = np.floor(t + HALF)
    f = t - whole
    mantissa = ((((_E5 * f + _E4) * f + _E3) * f + _E2) * f + _E1) * f + _E0
    return mantissa * _float_from_bits((i32(whole) + i32(127)) << i32(23))
