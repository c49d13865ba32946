"""The base classes of the client, one for each kind of call."""
