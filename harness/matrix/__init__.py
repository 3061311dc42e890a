"""`chaos matrix`: runs of every row under every column of a file, and one table of their verdicts."""
