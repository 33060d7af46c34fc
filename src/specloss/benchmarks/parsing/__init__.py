"""Parsers of answers: numbers and formulas, letters of a choice, function calls."""
