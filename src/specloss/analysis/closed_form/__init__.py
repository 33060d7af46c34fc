"""Figures 2, 4 and 8: what rules do to two distributions, by closed form and without any decoding."""
