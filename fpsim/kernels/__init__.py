"""Compiled kernels (numba). Nothing in this package imports the rest of fpsim."""
