"""Rollouts of the job-shop policy: every decision of a few rollouts in one program."""
