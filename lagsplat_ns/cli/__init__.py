"""The `lagsplat` command: what nerfstudio's own commands do not offer."""
