"""The viewer opens on what the filming camera saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import viser
import viser.transforms as vtf
from nerfstudio.viewer.viewer_elements import ViewerControl

if TYPE_CHECKING:
    from nerfstudio.viewer.viewer import Viewer

__all__ = ["StartView"]

_FRAMES_PER_SECOND = 10
"""asked of the renderer while the view moves; at nerfstudio's 30 a CPU would be sent down to a few pixels"""


class StartView(ViewerControl):
    """Puts every new client at the first training camera, and hides the frusta, which all lie on that very spot.

    nerfstudio finds it as an attribute of the model, in `ns-viewer` and in `ns-train --vis viewer` alike.
    """

    def _setup(self, viewer: Viewer) -> None:
        super()._setup(viewer)
        self.viser_server.on_client_connect(self._place)

    def _place(self, client: viser.ClientHandle) -> None:
        from nerfstudio.viewer.viewer import VISER_NERFSTUDIO_SCALE_RATIO

        dataset = self.viewer.pipeline.datamanager.train_dataset
        assert dataset is not None
        cameras = dataset.cameras
        matrix = cameras.camera_to_worlds[0].cpu().numpy()
        turn = vtf.SO3.from_matrix(matrix[:3, :3]) @ vtf.SO3.from_x_radians(np.pi)
        with client.atomic():
            client.camera.wxyz = turn.wxyz
            client.camera.position = matrix[:3, 3] * VISER_NERFSTUDIO_SCALE_RATIO
            client.camera.look_at = np.zeros(3)
            client.camera.fov = float(2 * np.arctan(cameras.height[0] / 2 / cameras.fy[0]))
        machine = self.viewer.render_statemachines.get(client.client_id)
        if machine is not None:
            machine.target_fps = _FRAMES_PER_SECOND
        if getattr(self.viewer, "camera_handles", None) and self.viewer.hide_images.visible:
            self.viewer.set_camera_visibility(False)
            self.viewer.toggle_cameravis_button()
