"""The pieces a `Simulator` is made of: cameras, grips, stepping and the time line."""
