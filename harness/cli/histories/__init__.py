"""`chaos check`, `export` and `generate`: histories, whoever made them."""
