"""What several agents want to minimise together: their losses on one model, and gradients for many at once."""
