"""The report: one self-contained HTML page that opens with the verdicts."""
