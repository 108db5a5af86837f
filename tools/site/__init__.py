"""What the documentation site needs besides mkdocs.yml: hooks of its build, and a check of it."""
