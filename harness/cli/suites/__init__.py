"""`chaos matrix` and `chaos suite`: runs of many plans."""
