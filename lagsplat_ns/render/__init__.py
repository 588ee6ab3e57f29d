"""Rendering of Gaussians: one function with gsplat's meaning, on CUDA through gsplat and on the CPU by itself."""
