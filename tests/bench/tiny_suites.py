"""The text of a suite that runs in a second, with one set and two methods."""

SET = """
[[set]]
name = "ten"
problem = "tsp"
recipe = "uniform"
size = 10
count = 4
seed = 3
sha256 = "1b47efe57e6edc208e6f0e996bb7c132"
"""
METHODS = """
[[method]]
name = "search"
policy = "{policy}"
attempts = 20
together = 2
[[method]]
name = "nearest"
solver = "nearest"
"""
