"""Flatness of finished runs: what is measured (measures), of which models (subjects), job by job in
one process or several (sweep), and what came of it: tables (outcome), whether it goes with accuracy
(ranks), pictures, a page, and the file that a report finds (saved).
"""
