"""Figures, and the claims of the papers as executable checks."""
