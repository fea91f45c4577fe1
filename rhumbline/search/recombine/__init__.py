"""Recombination of plans: the routes of several plans become one plan by set partitioning."""
