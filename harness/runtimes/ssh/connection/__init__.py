"""Sessions with hosts: keys, jumps, sudo, and what is run there."""
