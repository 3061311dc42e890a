"""What the runtimes that break nodes by an agent (../agent) have in common: docker/, ssh/."""
