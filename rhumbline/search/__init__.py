"""Inference-time search: tasks, strategies, the driver, and what follows a search."""
