"""Whether brokers and the controller answer as the state of the cluster demands."""
