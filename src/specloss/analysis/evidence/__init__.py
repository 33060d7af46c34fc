"""The evidence of an experiment: sums over its files, intervals, verdicts, findings and required sizes."""
