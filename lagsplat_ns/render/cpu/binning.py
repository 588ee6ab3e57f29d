"""Which Gaussians touch which tile, front to back: records, counting, sorting.

M = C N is the number of projected Gaussians, I the number of intersections (pairs of a Gaussian and a tile), T the
number of tiles in an image. A Gaussian is listed in the tiles of gsplat's square (`radii`) that its contour
alpha = 1/255 also reaches: the image is the same, and the lists are shorter.
"""

from __future__ import annotations

import math

import numpy as np

from lagsplat_ns.compiling.atomics import draw_ticket
from lagsplat_ns.render.cpu.compile import SAFE_MATH, device_function, kernel
from lagsplat_ns.render.cpu.lanes import (
    BLOCK,
    CHANNELS,
    COLOR,
    HALF,
    LOG2_E,
    LOG2_MIN_ALPHA,
    LOG2_OPACITY,
    MIN_ALPHA,
    QXX,
    QXY,
    QYY,
    REACH_X,
    REACH_Y,
    TILE,
    TILE_X0,
    TILE_X1,
    TILE_Y0,
    TILE_Y1,
    TWO,
    ZERO,
    X,
    Y,
    f32,
)

_REACH_MARGIN = f32(0.01)  # pixels, so that rounding never loses a pixel on the contour
_MAX_LOG2_OPACITY = f32(100)
_INV_TILE = f32(1 / TILE)
_DIGIT_BITS = 11
_DIGITS = 1 << _DIGIT_BITS


@device_function
def _tile_range(center, radius, reach, num_tiles):
    """Half-open range of tiles along one axis: gsplat's (radius, in float32) cut down to the contour (reach)."""
    t = center * _INV_TILE
    r = radius * _INV_TILE
    first = max(math.floor(t - r), math.floor((center - reach) * _INV_TILE))
    last = min(math.ceil(t + r), math.floor((center + reach) * _INV_TILE) + f32(1))
    first = min(max(first, ZERO), num_tiles)
    return first, min(max(last, first), num_tiles)


@device_function
def _pack_color(record, colors, depth, c, g, first_channel):
    """Channels first_channel ... + 3 of (colors, depth), missing ones as zero."""
    D = colors.shape[2]
    sc = c if colors.shape[0] > 1 else 0
    for d in range(CHANNELS):
        channel = first_channel + d
        value = ZERO
        if channel < D:
            value = colors[sc, g, channel]
        elif channel == D:
            value = depth
        record[COLOR + d] = value


@kernel(fastmath=SAFE_MATH)
def pack_records(
    counter,  # [1]
    means2d,  # [C, N, 2]
    conics,  # [C, N, 3]
    opacities,  # [C, N]
    radii,  # [C, N, 2]
    colors,  # [1 or C, N, D]
    depths,  # [C, N]
    tiles_x,
    tiles_y,
    records,  # [M, 16] out
    tiles_per_gauss,  # [C, N] out
):
    """One cache line per projected Gaussian with everything that a tile needs of it."""
    C, N = opacities.shape
    blocks = (N + BLOCK - 1) // BLOCK
    while True:
        ticket = draw_ticket(counter)
        if ticket >= C * blocks:
            break
        c = ticket // blocks
        begin = (ticket % blocks) * BLOCK
        for g in range(begin, min(begin + BLOCK, N)):
            record = records[c * N + g]
            tiles_per_gauss[c, g] = 0
            opacity = opacities[c, g]
            if radii[c, g, 0] <= 0 or radii[c, g, 1] <= 0 or not (opacity >= MIN_ALPHA):
                continue
            x, y = means2d[c, g, 0], means2d[c, g, 1]
            a, b, d = conics[c, g, 0], conics[c, g, 1], conics[c, g, 2]
            log2_opacity = min(f32(math.log2(opacity)), _MAX_LOG2_OPACITY)
            # The contour: d' Conic d = q, whose box has the half sides sqrt(q d / det), sqrt(q a / det)
            q = TWO * max(ZERO, log2_opacity - LOG2_MIN_ALPHA) / LOG2_E / (a * d - b * b)
            reach_x = math.sqrt(q * d) + _REACH_MARGIN
            reach_y = math.sqrt(q * a) + _REACH_MARGIN
            if not (reach_x < f32(1e8) and reach_y < f32(1e8)):  # overflow or NaN: let the radius decide
                reach_x = f32(1e8)
                reach_y = f32(1e8)
            x0, x1 = _tile_range(x, f32(radii[c, g, 0]), reach_x, f32(tiles_x))
            y0, y1 = _tile_range(y, f32(radii[c, g, 1]), reach_y, f32(tiles_y))
            record[X], record[Y] = x, y
            record[QXX], record[QXY], record[QYY] = -HALF * LOG2_E * a, -LOG2_E * b, -HALF * LOG2_E * d
            record[LOG2_OPACITY] = log2_opacity
            record[REACH_X], record[REACH_Y] = reach_x, reach_y
            record[TILE_X0], record[TILE_X1], record[TILE_Y0], record[TILE_Y1] = x0, x1, y0, y1
            tiles_per_gauss[c, g] = int(x1 - x0) * int(y1 - y0)
            _pack_color(record, colors, depths[c, g], c, g, 0)


@kernel(fastmath=SAFE_MATH)
def pack_colors(
    counter,  # [1]
    colors,  # [1 or C, N, D]
    depths,  # [C, N]
    first_channel,
    tiles_per_gauss,  # [C, N]
    records,  # [M, 16] in and out
):
    """The next four channels of every listed Gaussian, for images of more than four channels."""
    C, N = depths.shape
    blocks = (N + BLOCK - 1) // BLOCK
    while True:
        ticket = draw_ticket(counter)
        if ticket >= C * blocks:
            break
        c = ticket // blocks
        begin = (ticket % blocks) * BLOCK
        for g in range(begin, min(begin + BLOCK, N)):
            if tiles_per_gauss[c, g] > 0:
                _pack_color(records[c * N + g], colors, depths[c, g], c, g, first_channel)


@kernel(fastmath=False)
def count_and_sort(
    counter,  # [1]
    records,  # [M, 16]
    tiles_per_gauss,  # [C, N]
    depth_bits,  # [C, N] uint32: bits of a positive float32 are ordered as the float
    tiles_x,
    tile_counts,  # [C, T] out
    order,  # [C, N] int32 out: listed Gaussians by depth, equal depths by index
    num_listed,  # [C] out
    spare,  # [C, N] int32 scratch
):
    """Intersections per tile and the depth order in each image, one ticket per image."""
    C, N = tiles_per_gauss.shape
    histogram = np.empty((3, _DIGITS), np.int64)
    while True:
        c = draw_ticket(counter)
        if c >= C:
            break
        counts = tile_counts[c]
        counts[:] = 0
        histogram[:] = 0
        source, target = order[c], spare[c]
        n = 0
        for g in range(N):
            if tiles_per_gauss[c, g] == 0:
                continue
            record = records[c * N + g]
            for y in range(int(record[TILE_Y0]), int(record[TILE_Y1])):
                for x in range(int(record[TILE_X0]), int(record[TILE_X1])):
                    counts[y * tiles_x + x] += 1
            bits = np.int64(depth_bits[c, g])
            histogram[0, bits & (_DIGITS - 1)] += 1
            histogram[1, (bits >> _DIGIT_BITS) & (_DIGITS - 1)] += 1
            histogram[2, (bits >> (2 * _DIGIT_BITS)) & (_DIGITS - 1)] += 1
            target[n] = g
            n += 1
        num_listed[c] = n
        # Stable radix sort, three digits of eleven bits; it begins in `spare` and so ends in `order`
        source, target = target, source
        for p in range(3):
            total = 0
            for v in range(_DIGITS):
                count = histogram[p, v]
                histogram[p, v] = total
                total += count
            for j in range(n):
                g = source[j]
                v = (np.int64(depth_bits[c, g]) >> (p * _DIGIT_BITS)) & (_DIGITS - 1)
                target[histogram[p, v]] = g
                histogram[p, v] += 1
            source, target = target, source


@kernel(fastmath=False)
def fill_tiles(
    counter,  # [1]
    records,  # [M, 16]
    tiles_per_gauss,  # [C, N]
    first_slots,  # [C, N] int32
    depth_bits,  # [C, N] uint32
    tiles_x,
    order,  # [C, N]
    num_listed,  # [C]
    next_in_tile,  # [C, T] int32 in: where each tile's list begins; changed
    gaussian_ids,  # [I] int32 out: c N + g, by tile and depth
    slots,  # [I] int32 out: where the gradient of each intersection goes, by Gaussian
    isect_ids,  # [I] int64 out: tile number and depth bits, as gsplat's
):
    """Tile lists, front to back, one ticket per image."""
    C, N = tiles_per_gauss.shape
    T = next_in_tile.shape[1]
    while True:
        c = draw_ticket(counter)
        if c >= C:
            break
        cursor = next_in_tile[c]
        for j in range(num_listed[c]):
            g = order[c, j]
            record = records[c * N + g]
            slot = first_slots[c, g]
            depth = np.int64(depth_bits[c, g])
            for y in range(int(record[TILE_Y0]), int(record[TILE_Y1])):
                for x in range(int(record[TILE_X0]), int(record[TILE_X1])):
                    tile = y * tiles_x + x
                    position = cursor[tile]
                    cursor[tile] = position + 1
                    gaussian_ids[position] = c * N + g
                    slots[position] = slot
                    isect_ids[position] = (np.int64(c * T + tile) << 32) | depth
                    slot += 1
