"""What each API of a broker answers, a module each."""
