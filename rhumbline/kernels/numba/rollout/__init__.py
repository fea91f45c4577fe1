"""Rollouts of TSP and CVRP on a CPU: a thread takes a tile of rollouts through all steps."""
