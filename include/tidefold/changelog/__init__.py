"""Change sets on disk: their columns, their key groups, and the segments that hold them."""
