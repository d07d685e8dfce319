"""The claims of the paper on training-time model rewards."""
