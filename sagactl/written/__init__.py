"""What people write: YAML read strictly, with the place of everything in it and of what is wrong with it."""
