"""What happened inside the cluster: replicas' logs, the contract on lost power, and each target's own properties."""
