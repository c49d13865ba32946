"""Bascule: a durable message log for NATS that speaks Liftbridge and serves every stream as a table."""
