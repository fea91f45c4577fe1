"""Compiled moves of the local searches."""
