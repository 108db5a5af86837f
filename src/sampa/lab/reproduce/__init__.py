"""The paper's tables and figures, one experiment each.

request (how the user asks) · settings (what is trained at each scale) · plan (what an experiment
is) · core_time (how long it takes) · grids, causes (experiments that train) · toy, theory, gap,
speed, times, over_time, peers (experiments that measure) · catalog (all of them by ID) · tuning,
batch, shared, runner (carrying them out) · kept, records, readme (outcomes as files).
"""
