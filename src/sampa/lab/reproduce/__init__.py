"""The paper's tables and figures, one experiment each.

paper (published values) · settings (what is trained at each scale) · grids (experiments that train)
· toy, theory, gap, speed (experiments that measure) · catalog (all of them by ID) · tuning, runner
(carrying them out) · outcome (numbers side by side) · render, figures (tables and pictures).
"""
