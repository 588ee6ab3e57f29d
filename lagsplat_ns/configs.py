"""Entry points for nerfstudio: what `ns-train` lists. Kept free of logic, since every ns-* command imports it."""

from __future__ import annotations

import torch
from nerfstudio.configs.base_config import LoggingConfig, MachineConfig, ViewerConfig
from nerfstudio.plugins.types import MethodSpecification

from lagsplat_ns.methods.lagsplat import LagSplatModelConfig
from lagsplat_ns.methods.optimizers import adam, sparse_adam
from lagsplat_ns.methods.pipeline import LagSplatPipelineConfig
from lagsplat_ns.methods.trainer_config import LagSplatTrainerConfig

__all__ = ["lagsplat"]

lagsplat = MethodSpecification(
    config=LagSplatTrainerConfig(
        method_name="lagsplat",
        max_num_iterations=900,
        steps_per_save=2000,
        steps_per_eval_batch=0,
        steps_per_eval_image=0,
        steps_per_eval_all_images=0,
        mixed_precision=False,
        pipeline=LagSplatPipelineConfig(model=LagSplatModelConfig()),
        optimizers={
            "means": adam(5e-4),
            "scales": adam(1e-2),
            "quats": adam(1e-2),
            "features_dc": adam(2e-2),
            "features_rest": adam(1e-3),
            "opacities": adam(4e-2),
            "skinning": adam(2e-2),
            "frame_motions": sparse_adam(1e-3),
            "bases": adam(1e-3),
            "conditional": adam(1e-3),
        },
        viewer=ViewerConfig(num_rays_per_chunk=1 << 15, quit_on_train_completion=True),
        logging=LoggingConfig(steps_per_log=50),
        vis="viewer",
        machine=MachineConfig(device_type="cuda" if torch.cuda.is_available() else "cpu"),
    ),
    description="Physical, interactive Gaussian splats from a video: a latent state with learned Lagrangian dynamics.",
)
