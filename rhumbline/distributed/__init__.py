"""Many instances on many processes or machines: chunks, workers, and results that survive.

Inputs are cut into chunks of instances of equal size, by their order alone. A chunk is solved as
one group, here, by processes of this machine or by a Ray cluster. Equal chunks give equal results
wherever they are solved.
"""
