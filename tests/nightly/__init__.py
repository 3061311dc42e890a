"""What takes longer than CI has: run by hand before a change of consequence is called done (`make nightly`)."""
