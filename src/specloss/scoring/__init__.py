"""From answers to grades: `score` writes graded.parquet, `grade` runs the graders."""
