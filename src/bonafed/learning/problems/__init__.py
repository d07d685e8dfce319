"""What several agents minimise together: their losses on one model, for many models at once."""
