"""Instances to train on: random ones, and instances from user files."""
