"""What every published contract shares: canonical form, signature, coins, terms, attendance, audits."""
