"""The page that shows a pipeline in Airflow: read-only, server-rendered, behind Airflow's own login."""
