"""One file per claim; each has a CLAIM."""
