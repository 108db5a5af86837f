"""Several ranks: who answers which probe, and how gradients travel."""
