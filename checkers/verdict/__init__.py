"""From what the checkers found to the verdict on a run, and how verdicts are kept."""
