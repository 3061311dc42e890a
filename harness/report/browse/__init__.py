"""Pages of all that lies in a results directory: served by `chaos serve`, written as files by `chaos report --out`."""
