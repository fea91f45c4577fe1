"""Instances as users write them down: tables of places (CSV, DataFrames) and JSON objects."""
