"""The tables: each a function of the evidence; `catalogue` has them by name."""
