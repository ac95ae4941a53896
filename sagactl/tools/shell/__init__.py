"""Commands as tools: what they are asked to do, how they are run, and how they end for sure (E14, E17)."""
