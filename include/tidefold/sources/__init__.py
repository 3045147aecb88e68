"""Turns what a source landed into change sets: file names, reading, decoding, and the worker that does it in Spark."""
