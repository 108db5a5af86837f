"""What methods are made of: directions, geometries, when to perturb, combinations, losses."""
