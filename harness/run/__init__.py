"""The life of one run: start, workload and faults, healing, collection, verdict. `run` tells it from top to bottom."""
