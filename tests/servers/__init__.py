"""Systems of others that tests start, each in a process of its own: what a plugin says is tried on them."""
