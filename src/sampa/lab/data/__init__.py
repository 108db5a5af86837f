"""Data sets as arrays, and batches as pure functions of (seed, epoch, number)."""
