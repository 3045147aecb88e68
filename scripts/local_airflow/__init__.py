"""A real Airflow on this machine, below one folder of the clone: embedded Postgres, LocalExecutor, loopback only."""
