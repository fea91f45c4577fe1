"""The latents of a job: what was tried, and the plans that they give."""
