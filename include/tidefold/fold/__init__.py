"""Folds change sets into snapshots: the plan (pure), the merge (Arrow and DuckDB), and the tasks for Spark."""
