"""The hand-written engine: local training of many clients as one program, and a readable twin of it."""
