"""The images of nodes and agent: what they are made from, and how they are built."""
