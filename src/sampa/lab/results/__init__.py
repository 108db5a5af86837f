"""Results: numbers in short, and the one table and one chart that show them everywhere.

summary (mean, deviation, interval, quartiles) · table (cells, Markdown) · fitted, html (the same
table on a terminal, in a page) · charts, looks (pictures as data) · drawing, plot, axis,
scene (pictures laid out) · svg, png (pictures written) · sweep (which hyper-parameters are best).

Nothing here imports torch; html needs jinja2, png needs matplotlib (extra `report`).
"""
