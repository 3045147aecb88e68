"""Folds change sets into snapshots: plan (pure), kernel (Arrow and DuckDB), tasks for Spark, Delta commits."""
