"""Functions compiled for the CPU: how they are compiled and kept, and the threads that share them."""
