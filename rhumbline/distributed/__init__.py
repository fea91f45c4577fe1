"""Many instances on many processes or machines: chunks, workers, and results that survive crashes.

Inputs are cut into chunks of instances of equal size; the chunks depend only on the order of the
input. A chunk is solved as one group: in this process, by worker processes or by a Ray cluster.
With a budget in attempts, equal chunks on the same engine give equal results wherever they are
solved.
"""
