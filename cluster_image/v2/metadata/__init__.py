"""What this generation keeps in ZooKeeper: where (`paths`), how it is read (`reading`), the queues of state changes
(`state_queue`), and what clients are told of it (`view`)."""
