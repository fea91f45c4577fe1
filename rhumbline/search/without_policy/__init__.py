"""Instances that are too large for a policy: local search improves a constructed plan."""
