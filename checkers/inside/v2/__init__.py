"""What is checked inside the nodes of the generation on ZooKeeper (001)."""
