"""The golden rules of tools as a suite: each is called twice, late, in vain and at once, and its world is looked at."""
