"""Long trials, recorded in results/reliability; `make test-slow` runs short editions."""
