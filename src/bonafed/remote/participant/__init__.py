"""The participant's side: it believes nothing that it can compute, and answers only what it sold."""
