"""The vector, sums over it, projections, masks."""
