"""What a run will do, decided before it begins: the plan, its nemeses and workload by name, its fault schedule."""
