"""Data sets of what people post."""
