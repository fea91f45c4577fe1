"""The figures of the paper with our weights, for docs/results/figures.md."""
