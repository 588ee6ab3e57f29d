"""The dynamics as machine code: accelerations, rollouts of many windows, and adaptive steps for default mechanisms."""
