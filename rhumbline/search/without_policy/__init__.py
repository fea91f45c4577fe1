"""Instances that are too large for a policy: local search or regions improve a constructed plan."""
