"""Sets of plans: the best ones, different ones, and how similar two plans are."""
