"""From answers to grades: `score` writes a cell's graded.parquet, `grade` runs the graders, in parallel if slow."""
