"""Sets of plans: the best plans of each instance, different plans, and how similar two plans
are.
"""
