"""`chaos explore`, `replay`, `shrink` and `inspect`: simulated runs, many at once or step by step."""
