"""The protocol without noise: what is asked, how reports are checked, and what everybody owes."""
