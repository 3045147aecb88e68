"""The command line. `python -m tidefold.cli` is the same as `./tidefold`."""
