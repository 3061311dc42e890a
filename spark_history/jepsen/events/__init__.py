"""Events of Jepsen's histories, read in each of their notations."""
