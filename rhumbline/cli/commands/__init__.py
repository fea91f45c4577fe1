"""One module per command of `rhumb`: its options, and the work of the small ones."""
