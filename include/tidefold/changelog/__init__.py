"""Stored change sets: their columns, their key groups, and the segments that contain them."""
