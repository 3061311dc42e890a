"""What a node tells of itself: its trace, its metrics, its log."""
