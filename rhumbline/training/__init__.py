"""Training: recipes, objectives and the loop."""
