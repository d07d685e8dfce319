"""What several agents want to minimise together: losses on one model, for many at once."""
