"""What simulated nodes say and tell of themselves."""
