"""An experiment: what its config asks for, the cells that follow, where their files go, and what is complete.

    config (asked for)  ->  plan (what runs: cells, batches, files)  ->  study (the same, read back for the analysis)

Nothing here decodes, grades or computes a result.
"""
