"""From cells to tables, figures, findings and the report.

    results/<exp>/cells/…  --summarise-->  summary.parquet, problems.parquet  -->  tables, figures, findings, report

Everything after `summarise` reads the two small files alone. The analysis knows nothing of models, decoding or
Snakemake.

Units everywhere: accuracy and parse failures in percent of answers, times in seconds, BE in tokens, DS in tokens / s,
shares and probability masses from 0 to 1.
"""
