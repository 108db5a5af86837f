"""Long trials, recorded in results/reliability; `make test` runs short editions."""
