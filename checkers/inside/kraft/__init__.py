"""Properties of the target `kraft`, from its nodes' traces and metadata logs. `nodes` lists them."""
