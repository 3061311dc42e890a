"""A cluster that is already there ([service] of hosts.toml): it is tested as it was installed. Nothing but the agent is
put on its hosts, for as long as the run takes, and nothing is formatted, configured or removed."""
