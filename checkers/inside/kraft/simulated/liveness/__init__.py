"""What must come about, and in time: while clients work, and once all faults are healed."""
