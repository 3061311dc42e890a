"""What strikes the host itself and all that is on it: only where its owner says so."""
