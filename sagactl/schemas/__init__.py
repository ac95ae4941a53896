"""What is checked of JSON Schema here: patterns that can not take for ever, and formats."""
