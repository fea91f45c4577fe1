"""The routing network: an attention encoder, and a pointer decoder folded into tables."""
