"""For reviewers: one cell of one table by its names, decoded, valued and set beside the paper's number."""
