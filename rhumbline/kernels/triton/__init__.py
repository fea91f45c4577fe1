"""GPU kernels in Triton, with the host code that launches them."""
