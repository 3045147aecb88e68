"""The demonstration: Airflow's scheduler runs the pipeline over the sample input, phase by phase."""
