"""Distributions of random instances beyond the uniform one."""
