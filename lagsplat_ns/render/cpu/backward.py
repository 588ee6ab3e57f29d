"""Gradients of compositing, front to back.

With v the gradient in a pixel's colors, S_k = sum_(j>k) w_j (c_j . v) + T_end (background . v - v_alpha) is what lies
behind Gaussian k. It begins as (color . v) - v_alpha T_end and loses w_k (c_k . v) with every Gaussian; then
    dL/dalpha_k = T_k (c_k . v) - S_k / (1 - alpha_k).
Nothing is divided by a vanishing transmittance, and the cost per Gaussian does not grow with the image's opacity.
Every intersection writes a record of its own, which are then summed per Gaussian: no atomics, so sums have a fixed
order.
"""

from __future__ import annotations

import math

import numpy as np

from lagsplat_ns.compiling.atomics import draw_ticket
from lagsplat_ns.render.cpu.compile import kernel
from lagsplat_ns.render.cpu.lanes import (
    BLOCK,
    CHANNELS,
    COLOR,
    GRAD_ABS_X,
    GRAD_ABS_Y,
    GRAD_COLOR,
    GRAD_COLUMNS,
    GRAD_CONIC,
    GRAD_LOG_OPACITY,
    GRAD_X,
    GRAD_Y,
    HALF,
    LOG2_E,
    LOG2_MIN_ALPHA,
    LOG2_OPACITY,
    MAX_ALPHA,
    ONE,
    QXX,
    QXY,
    QYY,
    REACH_Y,
    TILE,
    TWO,
    ZERO,
    X,
    Y,
    exp2,
    f32,
)

_TINY_ALPHA = f32(1e-10)


@kernel(fastmath=True)
def composite_backward(
    counter,  # [1]
    records,  # [M, 16]
    offsets,  # [C T + 1] int32
    gaussian_ids,  # [I] int32
    slots,  # [I] int32
    shape,  # (C, H, W, tiles_y, tiles_x)
    first_channel,
    expected_last,
    with_absolute,
    colors,  # [C, H, W, X]
    transmittances,  # [C, H, W]
    last_ids,  # [C, H, W] int32
    v_colors,  # [C, H, W, X]
    v_alphas,  # [C, H, W, 1]
    gradients,  # [I, 12] out
):
    """Gradient record of every intersection, for channels first_channel ... + 3."""
    C, H, W, tiles_y, tiles_x = shape
    T = tiles_x * tiles_y
    num_channels = colors.shape[3]
    channels_here = min(CHANNELS, num_channels - first_channel)
    buffer = np.zeros((CHANNELS + 3, TILE, TILE), np.float32)  # T, last id, S, gradients in four channels
    row_last = np.empty(TILE, np.float32)
    # In every lane, summed over rows: weighted color gradients (4), v, v dy, v dy² (v: minus the gradient in sigma);
    # v itself
    sums = np.empty((CHANNELS + 4, TILE), np.float32)
    while True:
        ticket = draw_ticket(counter)
        if ticket >= C * T:
            break
        begin, end = offsets[ticket], offsets[ticket + 1]
        if begin >= end:
            continue
        c = ticket // T
        top, left = (ticket % T) // tiles_x * TILE, ticket % tiles_x * TILE
        rows, columns = min(TILE, H - top), min(TILE, W - left)
        buffer[0] = ONE
        buffer[1] = -ONE
        buffer[2:] = ZERO
        for y in range(rows):
            for i in range(columns):
                buffer[1, y, i] = f32(last_ids[c, top + y, left + i])
        if first_channel == 0:
            for y in range(rows):
                for i in range(columns):
                    buffer[2, y, i] = -v_alphas[c, top + y, left + i, 0] * transmittances[c, top + y, left + i]
        for d in range(channels_here):
            channel = first_channel + d
            if expected_last and channel == num_channels - 1:  # color = sum / alpha
                for y in range(rows):
                    for i in range(columns):
                        transmittance = transmittances[c, top + y, left + i]
                        alpha = max(ONE - transmittance, _TINY_ALPHA)
                        color = colors[c, top + y, left + i, channel]
                        v = v_colors[c, top + y, left + i, channel] / alpha
                        buffer[3 + d, y, i] = v
                        buffer[2, y, i] += color * v * (alpha + (transmittance if alpha > _TINY_ALPHA else ZERO))
            else:
                for y in range(rows):
                    for i in range(columns):
                        v = v_colors[c, top + y, left + i, channel]
                        buffer[3 + d, y, i] = v
                        buffer[2, y, i] += colors[c, top + y, left + i, channel] * v
        tile_last = -ONE
        for y in range(rows):
            row_last[y] = -ONE
            for i in range(TILE):
                row_last[y] = max(row_last[y], buffer[1, y, i])
            tile_last = max(tile_last, row_last[y])
        for k in range(begin, end):
            out = gradients[slots[k]]
            for column in range(GRAD_COLUMNS):
                out[column] = ZERO
            position = f32(k - begin)
            if position > tile_last:
                continue
            record = records[gaussian_ids[k]]
            x0, y0 = record[X] - f32(left) - HALF, record[Y] - f32(top) - HALF
            reach = record[REACH_Y]
            qxx, qxy, qyy, log2_opacity = record[QXX], record[QXY], record[QYY], record[LOG2_OPACITY]
            c0, c1, c2, c3 = record[COLOR], record[COLOR + 1], record[COLOR + 2], record[COLOR + 3]
            conic_a, conic_b, conic_c = qxx * (-TWO / LOG2_E), qxy * (-ONE / LOG2_E), qyy * (-TWO / LOG2_E)
            sums[:] = ZERO
            for y in range(math.ceil(max(ZERO, y0 - reach)), math.floor(min(f32(rows - 1), y0 + reach)) + 1):
                if position > row_last[y]:
                    continue
                dy = y0 - f32(y)
                linear, constant = qxy * dy, qyy * dy * dy + log2_opacity
                for i in range(TILE):
                    dx = x0 - f32(i)
                    t = (qxx * dx + linear) * dx + constant
                    unclamped = exp2(max(t, f32(-120)))
                    alpha = min(unclamped, MAX_ALPHA)
                    one_minus = ONE - alpha
                    before = buffer[0, y, i]
                    drawn = (t >= LOG2_MIN_ALPHA) & (position <= buffer[1, y, i])
                    weight = alpha * before if drawn else ZERO
                    dot = c0 * buffer[3, y, i]
                    dot += c1 * buffer[4, y, i]
                    dot += c2 * buffer[5, y, i]
                    dot += c3 * buffer[6, y, i]
                    behind = buffer[2, y, i] - weight * dot
                    buffer[2, y, i] = behind
                    v_a = before * dot - behind / one_minus
                    buffer[0, y, i] = before * one_minus if drawn else before
                    v_s = unclamped * v_a if (drawn & (unclamped <= MAX_ALPHA)) else ZERO
                    sums[0, i] += weight * buffer[3, y, i]
                    sums[1, i] += weight * buffer[4, y, i]
                    sums[2, i] += weight * buffer[5, y, i]
                    sums[3, i] += weight * buffer[6, y, i]
                    sums[4, i] += v_s
                    sums[5, i] += v_s * dy
                    sums[6, i] += v_s * dy * dy
                    sums[7, i] = v_s
                if with_absolute:
                    abs_x, abs_y = ZERO, ZERO
                    for i in range(TILE):
                        dx = x0 - f32(i)
                        abs_x += abs(sums[7, i] * (conic_a * dx + conic_b * dy))
                        abs_y += abs(sums[7, i] * (conic_b * dx + conic_c * dy))
                    out[GRAD_ABS_X] += abs_x
                    out[GRAD_ABS_Y] += abs_y
            v0, v1, v2, v3 = ZERO, ZERO, ZERO, ZERO
            # Moments over pixels: everything that a center and a conic need
            m_1, m_x, m_xx, m_y, m_xy, m_yy = ZERO, ZERO, ZERO, ZERO, ZERO, ZERO
            for i in range(TILE):
                dx = x0 - f32(i)
                v0 += sums[0, i]
                v1 += sums[1, i]
                v2 += sums[2, i]
                v3 += sums[3, i]
                m_1 += sums[4, i]
                m_x += sums[4, i] * dx
                m_xx += sums[4, i] * dx * dx
                m_y += sums[5, i]
                m_xy += sums[5, i] * dx
                m_yy += sums[6, i]
            out[GRAD_COLOR], out[GRAD_COLOR + 1], out[GRAD_COLOR + 2], out[GRAD_COLOR + 3] = v0, v1, v2, v3
            out[GRAD_X] = -(conic_a * m_x + conic_b * m_y)
            out[GRAD_Y] = -(conic_b * m_x + conic_c * m_y)
            out[GRAD_CONIC], out[GRAD_CONIC + 1], out[GRAD_CONIC + 2] = -HALF * m_xx, -m_xy, -HALF * m_yy
            out[GRAD_LOG_OPACITY] = m_1


@kernel(fastmath={"reassoc", "contract", "nsz"})
def sum_gradients(
    counter,  # [1]
    gradients,  # [I, 12]
    tiles_per_gauss,  # [C, N]
    first_slots,  # [C, N] int32
    opacities,  # [C, N]
    first_channel,
    v_means2d,  # [C, N, 2] in and out, as all below
    v_conics,  # [C, N, 3]
    v_opacities,  # [C, N]
    v_absolute,  # [C, N, 2]
    v_colors,  # [1 or C, N, D]
    v_depths,  # [C, N]
):
    """Adds the records of each Gaussian, in the order of tiles and images, to its gradients."""
    C, N = opacities.shape
    D = v_colors.shape[2]
    with_absolute = v_absolute.shape[0] > 0
    with_depth = v_depths.shape[0] > 0
    blocks = (N + BLOCK - 1) // BLOCK
    total = np.empty(GRAD_COLUMNS, np.float32)
    while True:
        ticket = draw_ticket(counter)
        if ticket >= blocks:
            break
        begin = ticket * BLOCK
        for c in range(C):
            sc = c if v_colors.shape[0] > 1 else 0
            for g in range(begin, min(begin + BLOCK, N)):
                if tiles_per_gauss[c, g] == 0:
                    continue
                first = first_slots[c, g]
                for column in range(GRAD_COLUMNS):
                    total[column] = gradients[first, column]
                for slot in range(first + 1, first + tiles_per_gauss[c, g]):
                    for column in range(GRAD_COLUMNS):
                        total[column] += gradients[slot, column]
                for d in range(CHANNELS):
                    channel = first_channel + d
                    if channel < D:
                        v_colors[sc, g, channel] += total[GRAD_COLOR + d]
                    elif channel == D and with_depth:
                        v_depths[c, g] += total[GRAD_COLOR + d]
                v_means2d[c, g, 0] += total[GRAD_X]
                v_means2d[c, g, 1] += total[GRAD_Y]
                for j in range(3):
                    v_conics[c, g, j] += total[GRAD_CONIC + j]
                v_opacities[c, g] += total[GRAD_LOG_OPACITY] / opacities[c, g]
                if with_absolute:
                    v_absolute[c, g, 0] += total[GRAD_ABS_X]
                    v_absolute[c, g, 1] += total[GRAD_ABS_Y]
