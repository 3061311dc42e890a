"""The network between simulated machines."""
