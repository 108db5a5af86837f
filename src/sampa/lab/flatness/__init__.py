"""Flatness of finished runs: what is measured (measures), of which models (subjects), job by job in
one process or several (sweep), and what came of it: tables (outcome), pictures, a page.
"""
