"""The vector, sums over it, masks."""
