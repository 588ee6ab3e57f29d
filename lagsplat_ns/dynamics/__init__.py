"""Dissipative Lagrangian dynamics in latent coordinates: pure torch, no picture and no nerfstudio."""
