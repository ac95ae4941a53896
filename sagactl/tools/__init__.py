"""What steps can call: the plugin API, the registry, and the kinds of tools."""
