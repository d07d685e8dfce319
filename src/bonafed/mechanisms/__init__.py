"""One folder per paper; the only place where economics and learning meet."""
