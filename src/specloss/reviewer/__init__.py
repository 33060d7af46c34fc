"""For reviewers: one cell of one table, decoded, measured and compared with the paper's number."""
