"""Simulate many seeds in parallel over the cores, and judge them all in one Spark job.

    results/<exploration>/
        explore.json    what was found, as printed by --json
        seeds.json      which seeds it was to simulate, and of which exploration they are a part
        dataset/        the history of every run: spark_history/dataset.py
        runs/s7/        a run directory, as of `chaos run`, for each seed that failed
        workers/        what a worker process said that came to grief

`source` says what is run, `workers` simulates it, `exploration` leads and judges, `failures` keeps what failed.
"""
