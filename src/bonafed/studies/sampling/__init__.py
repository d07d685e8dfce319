"""The claims of the paper on truthful client sampling under a budget."""
