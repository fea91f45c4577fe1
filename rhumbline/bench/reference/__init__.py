"""References of a set: the best known cost of each instance, in a file, and how it is made."""
