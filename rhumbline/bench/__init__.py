"""Benchmarks: suites of instances and methods, results as JSON lines, tables and figures."""
