"""Prints all cases as lines of tables."""

from support.neighbours import ALL, REFUSED, line

print("\n".join([*map(line, ALL), "", *map(line, REFUSED)]))
