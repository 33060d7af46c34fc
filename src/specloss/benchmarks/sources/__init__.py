"""Where problems come from: rows of local files, and data sets of the hub."""
