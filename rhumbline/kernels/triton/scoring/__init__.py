"""Log-probabilities of given sequences, with gradients."""
