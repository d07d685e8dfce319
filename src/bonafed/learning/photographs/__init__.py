"""Data sets of photographs."""
