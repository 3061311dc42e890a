"""What people read of a run: lines on the terminal while it goes on and when it is over, and html/, the report."""
