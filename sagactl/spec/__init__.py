"""From YAML text to a checked saga, or to problems that point at their place."""
