"""The `chaos` command: each command's arguments, and what it prints. `app` puts them together."""
