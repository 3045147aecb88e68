"""tidefold's Airflow operators: `from tidefold_airflow.operators import TidefoldIngestOperator`."""
