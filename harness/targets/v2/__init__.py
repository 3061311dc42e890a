"""The target `v2`: the generation before KRaft, on ZooKeeper (cluster_image/v2)."""
