"""The rules of a log's life cycle as pure functions on frozen values: no I/O, no clock, no randomness."""
