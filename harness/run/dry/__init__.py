"""`chaos run --dry-run`: who would be struck when, and by what, with nothing started and nothing written."""
