"""Tools of servers that speak the Model Context Protocol, as actions, compensations and probes of sagas."""
