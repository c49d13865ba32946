"""The base classes of the synchronous client, one for each kind of call."""
