"""Rollouts of TSP and CVRP: every step of a tile of rollouts in one program."""
