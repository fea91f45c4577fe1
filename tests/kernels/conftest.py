"""Kernels run in Triton's interpreter here. Triton asks when it is imported, so this comes before any other import."""

import os

os.environ["TRITON_INTERPRET"] = "1"
