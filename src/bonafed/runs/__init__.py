"""Training runs: the config, the folder, and the loop between them."""
