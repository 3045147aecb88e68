"""Runs the tests in three tiers with a budget of CPU seconds each: `make test-fast`, `make test`, `make test-all`."""
