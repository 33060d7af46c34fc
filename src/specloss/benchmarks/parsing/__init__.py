"""What answers are read by: numbers and formulas, letters of a choice, function calls."""
