"""A project's driver as programs use it, from any thread; see `sagactl.driving.driver`."""
