"""The base classes of the asynchronous client, its consumer and its producer."""
