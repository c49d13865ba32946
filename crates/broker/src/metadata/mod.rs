//! The metadata log of one voter, in our own engine.
