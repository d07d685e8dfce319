"""Training runs: what was asked (config), what is kept (folder), and the loop between them."""
