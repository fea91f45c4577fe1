"""CPU kernels compiled by numba, with the host code that calls them."""
