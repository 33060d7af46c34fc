"""Figures 2, 4 and 8: what rules do to two distributions, in closed form, without decoding."""
