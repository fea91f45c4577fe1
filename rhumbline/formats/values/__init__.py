"""Values in TSPLIB and VRPLIB files and the like: positions, matrices and decimals."""
