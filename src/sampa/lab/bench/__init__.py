"""`sampa bench`: what a step costs on this machine, as ratios of interleaved steps."""
