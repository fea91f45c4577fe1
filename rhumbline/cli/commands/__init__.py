"""The commands of rhumb, one module each."""
