"""The asynchronous counterparts of the synchronous client's parts, of the consumer and of the producer."""
