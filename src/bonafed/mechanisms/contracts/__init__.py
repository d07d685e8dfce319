"""Contracts as files, whatever the mechanism: canonical form, signature, reading and verifying."""
