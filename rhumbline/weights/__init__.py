"""Checkpoints trained by this project; `rhumb info` shows their facts."""
