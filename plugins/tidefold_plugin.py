"""The plugin of a clone, whose plugins folder Airflow reads. The installed package has an entry point instead."""

from tidefold_airflow.plugin import TidefoldPlugin

__all__ = ["TidefoldPlugin"]
