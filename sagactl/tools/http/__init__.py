"""Tools that are requests: declared in YAML by the operator, sent over HTTP under a policy of the network."""
