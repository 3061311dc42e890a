"""Consumer groups: members that come, go, crash and pause, and what is recorded of them."""
