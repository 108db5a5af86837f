"""Results: numbers in short, and the one table and one chart that show them everywhere.

summary (mean, deviation, interval, quartiles) · table (cells, Markdown) · fitted, html (the same
table on a terminal, in a page) · charts, looks (pictures as data) · drawing, svg (pictures drawn) ·
figures (those of a page, drawn together and kept) · sweep (which hyper-parameters are best).

Nothing here imports torch; html needs jinja2, drawing and svg need matplotlib (extra `report`).
"""
