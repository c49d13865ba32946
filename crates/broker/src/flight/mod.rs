//! Arrow Flight: every stream is a table.
