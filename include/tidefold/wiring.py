"""Puts the parts together: the one place that knows which store a configuration names."""

from __future__ import annotations

from pathlib import Path

from tidefold.config import load_config
from tidefold.operations.pipeline import Pipeline, now
from tidefold.storage import open_store
from tidefold.storage.local_copies.copies import open_roots

__all__ = ["Pipeline", "now", "open_pipeline"]


def open_pipeline(config_path: Path) -> Pipeline:
    """Reads the configuration and opens its store. Raises InvalidInputError."""
    config = load_config(config_path)
    base = config.path.parent
    store = open_store(config.store, base)
    folders = [base / folder for folder in config.local.folders]
    return Pipeline(config, store, open_roots(folders, store.uri("")) if folders else None)
