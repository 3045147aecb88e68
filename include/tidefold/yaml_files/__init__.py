"""YAML files that people write: read with the line of every key, checked by models, each mistake in plain words."""
