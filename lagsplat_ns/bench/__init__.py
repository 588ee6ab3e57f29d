"""Filmed systems with exactly known physics, and the scorer that holds a trained simulator against them.

Needs `pip install "lagsplat-ns[bench]"` (MuJoCo) for drawing new clips only: scoring reads the stored truth.
"""
