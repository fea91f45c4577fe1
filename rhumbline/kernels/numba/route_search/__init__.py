"""CPU kernel: ruin and recreate with local search, on the routes of one plan."""
