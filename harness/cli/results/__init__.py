"""Commands about what lies in a results directory: serve, report, diff, note, results."""
