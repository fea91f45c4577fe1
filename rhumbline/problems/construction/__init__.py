"""What constructions of tours and routes share: near nodes, and paths that grow together."""
