"""`python -m specloss.bench`: how fast decoding is, and what the workflow adds."""
