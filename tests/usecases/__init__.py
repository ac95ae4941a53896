"""The use cases as a door finds them that is not the command line."""
