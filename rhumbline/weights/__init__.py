"""Checkpoints trained by this project; `rhumb info` shows their facts."""

from pathlib import Path

FOLDER = Path(__file__).parent
