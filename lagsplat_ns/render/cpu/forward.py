"""Compositing of tiles, front to back.

A tile is 16 rows of 16 lanes. The loops over lanes have no branches and a fixed length: LLVM turns each into vector
code. Source: gsplat 1.4.0, `rasterize_to_pixels_fwd.cu`.
"""

from __future__ import annotations

import math

import numpy as np

from lagsplat_ns.compiling.atomics import draw_ticket
from lagsplat_ns.render.cpu.compile import kernel
from lagsplat_ns.render.cpu.lanes import (
    CHANNELS,
    COLOR,
    HALF,
    LOG2_MIN_ALPHA,
    LOG2_OPACITY,
    MAX_ALPHA,
    MIN_TRANSMITTANCE,
    ONE,
    QXX,
    QXY,
    QYY,
    REACH_Y,
    TILE,
    ZERO,
    X,
    Y,
    exp2,
    f32,
    i32,
)

_TINY_ALPHA = f32(1e-10)
_LOOK_EVERY = 16  # Gaussians between two looks for finished rows


@kernel(fastmath=True)
def composite_forward(
    counter,  # [1]
    records,  # [M, 16]
    offsets,  # [C T + 1] int32: where each tile's list begins
    gaussian_ids,  # [I] int32
    shape,  # (C, H, W, tiles_y, tiles_x)
    first_channel,
    backgrounds,  # [C, B]; B = 0 without; channels from B on have none
    expected_last,  # divide the last channel by alpha
    colors,  # [C, H, W, X] out: channels first_channel ... + 3
    alphas,  # [C, H, W, 1] out
    transmittances,  # [C, H, W] out
    last_ids,  # [C, H, W] int32 out: position of the last Gaussian composited, relative to its tile's list; -1 for none
):
    """sum_k c_k alpha_k T_k + T background, T_k = prod_(j<k) (1 - alpha_j)."""
    C, H, W, tiles_y, tiles_x = shape
    T = tiles_x * tiles_y
    num_channels = colors.shape[3]
    buffer = np.empty((CHANNELS + 2, TILE, TILE), np.float32)  # T (negative: finished), last id, four channels
    while True:
        ticket = draw_ticket(counter)
        if ticket >= C * T:
            break
        c = ticket // T
        top, left = (ticket % T) // tiles_x * TILE, ticket % tiles_x * TILE
        rows, columns = min(TILE, H - top), min(TILE, W - left)
        begin, end = offsets[ticket], offsets[ticket + 1]
        for y in range(TILE):
            for i in range(TILE):
                buffer[0, y, i] = ONE if i < columns else -ONE
        buffer[1] = -ONE
        buffer[2:] = ZERO
        live = (1 << rows) - 1  # a bit for every row with an unfinished pixel
        for k in range(begin, end):
            if (k - begin) % _LOOK_EVERY == _LOOK_EVERY - 1:
                for y in range(rows):
                    largest = -ONE
                    for i in range(TILE):
                        largest = max(largest, buffer[0, y, i])
                    if largest < ZERO:
                        live &= ~(1 << y)
                if live == 0:
                    break
            record = records[gaussian_ids[k]]
            x0, y0 = record[X] - f32(left) - HALF, record[Y] - f32(top) - HALF
            reach = record[REACH_Y]
            qxx, qxy, qyy, log2_opacity = record[QXX], record[QXY], record[QYY], record[LOG2_OPACITY]
            c0, c1, c2, c3 = record[COLOR], record[COLOR + 1], record[COLOR + 2], record[COLOR + 3]
            position = f32(k - begin)
            for y in range(math.ceil(max(ZERO, y0 - reach)), math.floor(min(f32(rows - 1), y0 + reach)) + 1):
                if (live >> y) & 1 == 0:
                    continue
                dy = y0 - f32(y)
                linear, constant = qxy * dy, qyy * dy * dy + log2_opacity
                for i in range(TILE):
                    dx = x0 - f32(i)
                    t = (qxx * dx + linear) * dx + constant  # log2 alpha
                    before = buffer[0, y, i]
                    alpha = min(exp2(max(t, f32(-120))), MAX_ALPHA)
                    after = before * (ONE - alpha)
                    reached = (t >= LOG2_MIN_ALPHA) & (before > ZERO)
                    finished = reached & (after <= MIN_TRANSMITTANCE)
                    drawn = reached & (after > MIN_TRANSMITTANCE)
                    weight = alpha * before if drawn else ZERO
                    buffer[2, y, i] += c0 * weight
                    buffer[3, y, i] += c1 * weight
                    buffer[4, y, i] += c2 * weight
                    buffer[5, y, i] += c3 * weight
                    buffer[1, y, i] = position if drawn else buffer[1, y, i]
                    buffer[0, y, i] = after if drawn else (-before if finished else before)
        if first_channel == 0:
            for y in range(rows):
                for i in range(columns):
                    transmittance = abs(buffer[0, y, i])
                    transmittances[c, top + y, left + i] = transmittance
                    alphas[c, top + y, left + i, 0] = ONE - transmittance
                    last_ids[c, top + y, left + i] = i32(buffer[1, y, i])
        for d in range(min(CHANNELS, num_channels - first_channel)):
            channel = first_channel + d
            background = backgrounds[c, channel] if channel < backgrounds.shape[1] else ZERO
            for y in range(rows):
                for i in range(columns):
                    colors[c, top + y, left + i, channel] = buffer[2 + d, y, i] + abs(buffer[0, y, i]) * background
            if expected_last and channel == num_channels - 1:
                for y in range(rows):
                    for i in range(columns):
                        colors[c, top + y, left + i, channel] /= max(ONE - abs(buffer[0, y, i]), _TINY_ALPHA)
