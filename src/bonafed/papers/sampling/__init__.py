"""Claims of the paper on truthful client sampling."""
