"""The learning core; it has never heard of money."""
