"""The parts that the synchronous client is put together from, one for each kind of call."""
