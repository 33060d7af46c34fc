"""`python -m specloss.speed`: how fast decoding is, and what the workflow adds."""
