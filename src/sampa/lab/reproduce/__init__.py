"""The paper's tables and figures, one experiment each.

request (how the user asks) · settings (what is trained at each scale) · plan (what an experiment
is) · grids (experiments that train) · toy, theory, gap, speed, times (experiments that measure) ·
catalog (all of them by ID) · tuning, batch, runner (carrying them out) · records, readme (outcomes
as files).
"""
