"""Projection of Gaussians into images, forward and backward.

Shapes: S Gaussian sets (1, or C when every camera sees a set of its own), C cameras, N Gaussians in a set.
Source: gsplat 1.4.0, `fully_fused_projection_fwd.cu`, `utils.cuh`; EWA splatting, Zwicker et al. 2002.
"""

from __future__ import annotations

import math

import numpy as np

from lagsplat_ns.compiling.atomics import draw_ticket
from lagsplat_ns.render.cpu.compile import SAFE_MATH, device_function, kernel
from lagsplat_ns.render.cpu.lanes import BLOCK, HALF, MIN_ALPHA, ONE, TWO, ZERO, f32, i32

_MAX_RADIUS = f32(1e8)  # pixels; beyond it a float32 covariance overflows


@device_function
def _rotation(w, x, y, z):
    """Rows of the rotation matrix of a unit quaternion."""
    return (
        ONE - TWO * (y * y + z * z),
        TWO * (x * y - w * z),
        TWO * (x * z + w * y),
        TWO * (x * y + w * z),
        ONE - TWO * (x * x + z * z),
        TWO * (y * z - w * x),
        TWO * (x * z - w * y),
        TWO * (y * z + w * x),
        ONE - TWO * (x * x + y * y),
    )


@device_function
def _project(mean, quat, scale, view, K, width, height, near):
    """Position in the camera, projected axes and covariance of one Gaussian.

    M = R diag(scale) [3, 3]; J the Jacobian of the pinhole projection; U = J W [2, 3]; A = U M [2, 3]; covariance A Aᵀ.
    """
    norm = math.sqrt(max(quat[0] * quat[0] + quat[1] * quat[1] + quat[2] * quat[2] + quat[3] * quat[3], f32(1e-24)))
    inv_norm = ONE / norm
    q = (quat[0] * inv_norm, quat[1] * inv_norm, quat[2] * inv_norm, quat[3] * inv_norm)
    R = _rotation(q[0], q[1], q[2], q[3])
    sx, sy, sz = scale[0], scale[1], scale[2]
    M = (R[0] * sx, R[1] * sy, R[2] * sz, R[3] * sx, R[4] * sy, R[5] * sz, R[6] * sx, R[7] * sy, R[8] * sz)

    px = view[0, 0] * mean[0] + view[0, 1] * mean[1] + view[0, 2] * mean[2] + view[0, 3]
    py = view[1, 0] * mean[0] + view[1, 1] * mean[1] + view[1, 2] * mean[2] + view[1, 3]
    pz = view[2, 0] * mean[0] + view[2, 1] * mean[1] + view[2, 2] * mean[2] + view[2, 3]
    rz = ONE / (pz if pz >= near else ONE)
    fx, fy, cx, cy = K[0, 0], K[1, 1], K[0, 2], K[1, 2]

    # The Jacobian is taken at a point at most 15 % of the image outside of it
    margin_x, margin_y = f32(0.15) * width / fx, f32(0.15) * height / fy
    nx, ny = px * rz, py * rz
    nx_in = min((width - cx) / fx + margin_x, max(-(cx / fx + margin_x), nx))
    ny_in = min((height - cy) / fy + margin_y, max(-(cy / fy + margin_y), ny))
    j00, j11 = fx * rz, fy * rz
    j02, j12 = -j00 * nx_in, -j11 * ny_in
    U = (
        j00 * view[0, 0] + j02 * view[2, 0],
        j00 * view[0, 1] + j02 * view[2, 1],
        j00 * view[0, 2] + j02 * view[2, 2],
        j11 * view[1, 0] + j12 * view[2, 0],
        j11 * view[1, 1] + j12 * view[2, 1],
        j11 * view[1, 2] + j12 * view[2, 2],
    )
    A = (
        U[0] * M[0] + U[1] * M[3] + U[2] * M[6],
        U[0] * M[1] + U[1] * M[4] + U[2] * M[7],
        U[0] * M[2] + U[1] * M[5] + U[2] * M[8],
        U[3] * M[0] + U[4] * M[3] + U[5] * M[6],
        U[3] * M[1] + U[4] * M[4] + U[5] * M[7],
        U[3] * M[2] + U[4] * M[5] + U[5] * M[8],
    )
    covariance = (
        A[0] * A[0] + A[1] * A[1] + A[2] * A[2],
        A[0] * A[3] + A[1] * A[4] + A[2] * A[5],
        A[3] * A[3] + A[4] * A[4] + A[5] * A[5],
    )
    return (px, py, pz, rz), (nx, ny, nx_in, ny_in), U, A, R, M, covariance, inv_norm, q, j02, j12


@kernel(fastmath=SAFE_MATH)
def project_forward(
    counter,  # [1]
    means,  # [S, N, 3]
    quats,  # [S, N, 4]
    scales,  # [S, N, 3]
    opacities,  # [S, N]
    viewmats,  # [C, 4, 4]
    Ks,  # [C, 3, 3]
    limits,  # [7] width, height, eps2d, near, far, radius_clip, unused
    antialiased,
    opacity_aware,  # gsplat 1.5's radii
    radii,  # [C, N, 2] out
    means2d,  # [C, N, 2] out
    depths,  # [C, N] out
    conics,  # [C, N, 3] out
    compensations,  # [C, N] out
    opacities_out,  # [C, N] out
):
    """Centers, depths, inverse covariances, radii and opacities in every image; zeros where a Gaussian is culled."""
    C, N = depths.shape
    width, height, eps2d, near, far, radius_clip = limits[0], limits[1], limits[2], limits[3], limits[4], limits[5]
    blocks = (N + BLOCK - 1) // BLOCK
    while True:
        ticket = draw_ticket(counter)
        if ticket >= C * blocks:
            break
        c = ticket // blocks
        begin = (ticket % blocks) * BLOCK
        for g in range(begin, min(begin + BLOCK, N)):
            sm = c if means.shape[0] > 1 else 0
            sq = c if quats.shape[0] > 1 else 0
            ss = c if scales.shape[0] > 1 else 0
            so = c if opacities.shape[0] > 1 else 0
            camera, _, _, _, _, _, covariance, _, _, _, _ = _project(
                means[sm, g], quats[sq, g], scales[ss, g], viewmats[c], Ks[c], width, height, near
            )
            a0, b, c0 = covariance
            a, d = a0 + eps2d, c0 + eps2d
            determinant = a * d - b * b
            depth = camera[2]
            visible = (depth >= near) & (depth <= far) & (determinant > ZERO)
            inv = ONE / determinant
            opacity = opacities[so, g]
            compensation = ONE
            if antialiased:
                compensation = math.sqrt(max(ZERO, (a0 * c0 - b * b) * inv))
                opacity *= compensation
            if opacity_aware:
                visible = visible & (opacity >= MIN_ALPHA)
                sigmas = min(f32(3.33), math.sqrt(TWO * math.log(max(ONE, opacity / MIN_ALPHA))))
                radius_x, radius_y = math.ceil(sigmas * math.sqrt(a)), math.ceil(sigmas * math.sqrt(d))
            else:
                middle = HALF * (a + d)
                largest = middle + math.sqrt(max(f32(0.01), middle * middle - determinant))
                radius_x = math.ceil(f32(3) * math.sqrt(largest))
                radius_y = radius_x
            x = Ks[c, 0, 0] * camera[0] * camera[3] + Ks[c, 0, 2]
            y = Ks[c, 1, 1] * camera[1] * camera[3] + Ks[c, 1, 2]
            visible = visible & ((radius_x > radius_clip) | (radius_y > radius_clip))
            visible = visible & (radius_x < _MAX_RADIUS) & (radius_y < _MAX_RADIUS)
            visible = visible & (x + radius_x > ZERO) & (x - radius_x < width)
            visible = visible & (y + radius_y > ZERO) & (y - radius_y < height)
            radii[c, g, 0] = i32(radius_x) if visible else 0
            radii[c, g, 1] = i32(radius_y) if visible else 0
            means2d[c, g, 0] = x if visible else ZERO
            means2d[c, g, 1] = y if visible else ZERO
            depths[c, g] = depth if visible else ZERO
            conics[c, g, 0] = d * inv if visible else ZERO
            conics[c, g, 1] = -b * inv if visible else ZERO
            conics[c, g, 2] = a * inv if visible else ZERO
            compensations[c, g] = compensation if visible else ZERO
            opacities_out[c, g] = opacity if visible or not antialiased else ZERO


@kernel(fastmath=SAFE_MATH)
def project_backward(
    counter,  # [1]
    means,  # [S, N, 3]
    quats,  # [S, N, 4]
    scales,  # [S, N, 3]
    opacities,  # [S, N]
    viewmats,  # [C, 4, 4]
    Ks,  # [C, 3, 3]
    limits,  # [7]
    antialiased,
    with_view,
    radii,  # [C, N, 2]
    conics,  # [C, N, 3]
    compensations,  # [C, N]
    v_means2d,  # [C, N, 2]
    v_depths,  # [C, N]
    v_conics,  # [C, N, 3]
    v_opacities_out,  # [C, N]
    v_means,  # [S, N, 3] in and out, as all below
    v_quats,  # [S, N, 4]
    v_scales,  # [S, N, 3]
    v_opacities,  # [S, N]
    v_view_blocks,  # [blocks, C, 12] float64
):
    """Adds the gradients of everything that `project_forward` takes; v_x is the gradient of the loss in x."""
    C, N = compensations.shape
    width, height, eps2d, near = limits[0], limits[1], limits[2], limits[3]
    blocks = (N + BLOCK - 1) // BLOCK
    v_M = np.empty(9, np.float32)
    v_U = np.empty(6, np.float32)
    while True:
        ticket = draw_ticket(counter)
        if ticket >= blocks:
            break
        begin = ticket * BLOCK
        for c in range(C):
            sm = c if means.shape[0] > 1 else 0
            sq = c if quats.shape[0] > 1 else 0
            ss = c if scales.shape[0] > 1 else 0
            so = c if opacities.shape[0] > 1 else 0
            view, K = viewmats[c], Ks[c]
            fx, fy = K[0, 0], K[1, 1]
            for g in range(begin, min(begin + BLOCK, N)):
                if not antialiased:
                    v_opacities[so, g] += v_opacities_out[c, g]
                if radii[c, g, 0] <= 0 or radii[c, g, 1] <= 0:
                    continue
                camera, normalized, U, A, R, M, _, inv_norm, q, j02, j12 = _project(
                    means[sm, g], quats[sq, g], scales[ss, g], view, K, width, height, near
                )
                # Conic = inverse covariance: v_covariance = -Conic v_Conic Conic
                ca, cb, cc = conics[c, g, 0], conics[c, g, 1], conics[c, g, 2]
                g0, g1, g2 = v_conics[c, g, 0], HALF * v_conics[c, g, 1], v_conics[c, g, 2]
                p00, p01, p10, p11 = ca * g0 + cb * g1, ca * g1 + cb * g2, cb * g0 + cc * g1, cb * g1 + cc * g2
                v_xx, v_xy, v_yy = -(p00 * ca + p01 * cb), -(p00 * cb + p01 * cc), -(p10 * cb + p11 * cc)
                if antialiased:
                    compensation = compensations[c, g]
                    v_out = v_opacities_out[c, g]
                    v_opacities[so, g] += v_out * compensation
                    v_square = v_out * opacities[so, g] * HALF / (compensation + f32(1e-6))
                    one_minus = ONE - compensation * compensation
                    conic_det = ca * cc - cb * cb
                    v_xx += v_square * (one_minus * ca - eps2d * conic_det)
                    v_xy += v_square * one_minus * cb
                    v_yy += v_square * (one_minus * cc - eps2d * conic_det)
                # covariance = A Aᵀ, A = U M
                v_A0, v_A1, v_A2 = (
                    TWO * (v_xx * A[0] + v_xy * A[3]),
                    TWO * (v_xx * A[1] + v_xy * A[4]),
                    TWO * (v_xx * A[2] + v_xy * A[5]),
                )
                v_A3, v_A4, v_A5 = (
                    TWO * (v_xy * A[0] + v_yy * A[3]),
                    TWO * (v_xy * A[1] + v_yy * A[4]),
                    TWO * (v_xy * A[2] + v_yy * A[5]),
                )
                for m in range(3):
                    v_M[3 * m] = U[m] * v_A0 + U[3 + m] * v_A3
                    v_M[3 * m + 1] = U[m] * v_A1 + U[3 + m] * v_A4
                    v_M[3 * m + 2] = U[m] * v_A2 + U[3 + m] * v_A5
                    v_U[m] = v_A0 * M[3 * m] + v_A1 * M[3 * m + 1] + v_A2 * M[3 * m + 2]
                    v_U[3 + m] = v_A3 * M[3 * m] + v_A4 * M[3 * m + 1] + v_A5 * M[3 * m + 2]
                # U = J W: gradient of the Jacobian's four entries, then of the position in the camera
                px, py, _, rz = camera
                nx, ny, nx_in, ny_in = normalized
                v_j00, v_j02, v_j11, v_j12 = ZERO, ZERO, ZERO, ZERO
                for m in range(3):
                    v_j00 += v_U[m] * view[0, m]
                    v_j02 += v_U[m] * view[2, m]
                    v_j11 += v_U[3 + m] * view[1, m]
                    v_j12 += v_U[3 + m] * view[2, m]
                j00, j11 = fx * rz, fy * rz
                gx, gy = v_means2d[c, g, 0], v_means2d[c, g, 1]
                v_px, v_py = j00 * gx, j11 * gy
                v_pz = v_depths[c, g] - (j00 * px * gx + j11 * py * gy) * rz - (j00 * v_j00 + j11 * v_j11) * rz
                if nx == nx_in:
                    v_px -= j00 * rz * v_j02
                    v_pz += TWO * j00 * nx_in * rz * v_j02
                else:
                    v_pz += j00 * nx_in * rz * v_j02
                if ny == ny_in:
                    v_py -= j11 * rz * v_j12
                    v_pz += TWO * j11 * ny_in * rz * v_j12
                else:
                    v_pz += j11 * ny_in * rz * v_j12
                for j in range(3):
                    v_means[sm, g, j] += view[0, j] * v_px + view[1, j] * v_py + view[2, j] * v_pz
                if with_view:
                    for j in range(3):
                        mean = means[sm, g, j]
                        v_view_blocks[ticket, c, j] += v_px * mean + j00 * v_U[j]
                        v_view_blocks[ticket, c, 4 + j] += v_py * mean + j11 * v_U[3 + j]
                        v_view_blocks[ticket, c, 8 + j] += v_pz * mean + j02 * v_U[j] + j12 * v_U[3 + j]
                    v_view_blocks[ticket, c, 3] += v_px
                    v_view_blocks[ticket, c, 7] += v_py
                    v_view_blocks[ticket, c, 11] += v_pz
                # M = R diag(scale)
                for j in range(3):
                    v_scales[ss, g, j] += v_M[j] * R[j] + v_M[3 + j] * R[3 + j] + v_M[6 + j] * R[6 + j]
                    for i in range(3):
                        v_M[3 * i + j] *= scales[ss, g, j]
                w, x, y, z = q
                r = v_M
                v_w = TWO * (x * (r[7] - r[5]) + y * (r[2] - r[6]) + z * (r[3] - r[1]))
                v_x = TWO * (-TWO * x * (r[4] + r[8]) + y * (r[3] + r[1]) + z * (r[6] + r[2]) + w * (r[7] - r[5]))
                v_y = TWO * (x * (r[3] + r[1]) - TWO * y * (r[0] + r[8]) + z * (r[7] + r[5]) + w * (r[2] - r[6]))
                v_z = TWO * (x * (r[6] + r[2]) + y * (r[7] + r[5]) - TWO * z * (r[0] + r[4]) + w * (r[3] - r[1]))
                along = v_w * w + v_x * x + v_y * y + v_z * z  # a quaternion's length has no effect
                v_quats[sq, g, 0] += (v_w - along * w) * inv_norm
                v_quats[sq, g, 1] += (v_x - along * x) * inv_norm
                v_quats[sq, g, 2] += (v_y - along * y) * inv_norm
                v_quats[sq, g, 3] += (v_z - along * z) * inv_norm
