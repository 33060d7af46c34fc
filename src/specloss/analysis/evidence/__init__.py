"""What is known of an experiment: sums over its files, intervals, verdicts, findings and the sizes they need."""
