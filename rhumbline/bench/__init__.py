"""Benchmarks: suites of instances and methods in TOML, results as JSON lines, tables and figures."""
