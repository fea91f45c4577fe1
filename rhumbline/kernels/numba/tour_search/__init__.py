"""Iterated local search on tours, compiled by numba."""
