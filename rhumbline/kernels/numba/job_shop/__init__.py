"""Rollouts of job shops on a CPU: a thread carries a few schedules at a time to their ends."""
