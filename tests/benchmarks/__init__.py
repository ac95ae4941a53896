"""How fast and how small sagactl is, measured against floors: `python -m tests.benchmarks`.

Each topic is a module with a function `measure(repetitions)` that yields rows; the name of the module is the name of
the topic. A row holds what sagactl took, what the floor took - the least that anybody would pay for the same thing, on
the same machine in the same minute, taking turns with sagactl - and the ratio, for which there is a goal. Ratios travel
between machines, seconds don't; nothing here is an assertion, and no test hangs on it.
"""
