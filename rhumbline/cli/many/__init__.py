"""`rhumb solve` for many instances: they are streamed, and results go to a file that survives."""
