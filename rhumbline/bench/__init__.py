"""Measuring: suites of instances and methods in TOML, results as lines of JSON, tables and
figures made of those.
"""
