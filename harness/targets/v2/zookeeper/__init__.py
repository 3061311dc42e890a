"""ZooKeeper's servers: Apache ZooKeeper itself for containers (`distribution`), and a model of it for the simulator."""
