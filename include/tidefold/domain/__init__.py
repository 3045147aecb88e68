"""The life cycle of a log, pure: values, moves, names, errors. Standard library only; no I/O, no clock, no chance."""
