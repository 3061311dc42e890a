"""What a run leaves: its directory, the history as it is recorded, what was collected; and what `chaos check`
finds there."""
