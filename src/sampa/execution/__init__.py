"""Where probes are answered: in one process, or on several ranks (`parallel`)."""
