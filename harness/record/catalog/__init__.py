"""What lies in a results directory: runs, explorations, suites and matrices, indexed, searched, noted and pruned."""
