"""A cluster on this machine: a Spark master, two workers in folders of their own, a real S3 server, and Airflow."""
