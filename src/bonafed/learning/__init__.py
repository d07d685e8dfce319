"""The learning core; it knows nothing about money."""
