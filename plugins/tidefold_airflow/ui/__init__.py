"""The page that shows a pipeline in Airflow: read-only, rendered on the server, behind Airflow's login."""
