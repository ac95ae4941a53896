"""What can be done with runs whichever door asks: the command line, a server, a program of somebody's own.

Plain functions over a project, with typed results: which run, step or dead letter is meant, what may be said of it,
what would come of it, what was answered. Nothing here writes to a terminal or asks a person anything.
"""
