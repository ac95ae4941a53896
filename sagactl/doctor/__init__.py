"""What can be wrong around a project: each check looks at one thing and says how to mend it."""
