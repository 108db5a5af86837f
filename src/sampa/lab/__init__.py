"""The laboratory: training, experiments, reports. What it needs comes with extras."""
