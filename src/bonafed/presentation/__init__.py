"""What is shown: documents as data, and how a terminal, a notebook, a figure and a page show them."""
