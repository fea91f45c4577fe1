"""Checkpoints for research; rhumbline finds them by the entry point in `pyproject.toml`."""

from pathlib import Path

FOLDER = Path(__file__).parent
