"""Data sets: read, checked, split among clients and scaled."""
