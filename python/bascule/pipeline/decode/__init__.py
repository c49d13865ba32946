"""Decoders: bytes of records become columns; what does not fit becomes an error column, never a failed batch."""
