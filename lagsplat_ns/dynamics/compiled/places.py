"""Places in a model's `layout`: `layout[places.D]` is the number of coordinates; see `layout.build_model`."""

from __future__ import annotations

# sizes, switches and highest powers
D, K, J, R, M, T, H, NUM_INPUTS, BLOCKS = range(9)
IS_CONSTANT, HAS_WEIGHT, HAS_MAP, HAS_SPEED, DEGREE, HIGHEST = range(9, 15)

# places of tables in `layout`: [K, d], [R, 3], [T, 4] (axis, power, axis, power), [H]
EXPONENTS, FEATURES, TERMS, HARMONIC_AXES = range(15, 19)

# places in `shared`
RIDGE, MASS_SCALE, INVERSE_CLIP, SLOW_SQUARE = range(19, 23)
ANGLES, MAP, CENTER, INVERSE_SCALE, HARMONIC_RATES, SAME_GROUP, INPUT_CENTER, INPUT_SCALE = range(23, 31)

# rows of memory: first those that hold the state's own parameter vector
MASS, GRAM, WEIGHT, STIFFNESS, WEIGHTS, HARMONICS, RATES, EXTRA, INPUTS = range(31, 40)

# what an acceleration is asked for, and what it writes
Q, QD, U, PULL, QDD = range(40, 45)

# what it needs on the way
PHI, PHI_SLOPE, PHI_RATE, PHI_ACCEL, ANGLE, ANGLE_SLOPE, FEATURE_SLOPE, FEATURE_BEND = range(45, 53)
MOTION_SLOPE, MOTION_BEND, PRODUCT, INERTIA, MOMENTUM, FORCE, POWERS, CLIP_SLOPE = range(53, 61)

# states and slopes of an integrator, and how many rows there are
FROM_Q, FROM_QD, STEP, SLOPES, ROWS = range(61, 66)

COUNT = 66
