"""What clients ask of a cluster beside records: that topics are made, changed and deleted, and records of them."""
