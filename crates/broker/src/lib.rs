//! The running whole: partitions, protocol servers, NATS, metadata log, metrics.
