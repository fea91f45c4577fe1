"""Rollouts and scores of job shops on a CPU: a thread works on a few schedules at a time."""
