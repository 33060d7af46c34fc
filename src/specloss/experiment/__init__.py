"""An experiment: its config, its cells, their files, and which are complete.

    config (asked for)  ->  plan (what runs: cells, batches, files)  ->  study (the same, read back for the analysis)

Nothing here decodes, grades or computes a result.
"""
