"""tidefold: changelogs in, verified and restorable Delta tables out."""

__version__ = "0.1.0"
