//! Tests of the Liftbridge service: its parts, and the whole on a real engine over a real connection.
mod cursors;
mod framing;
mod harness;
mod positions;
mod producing;
mod publishing;
mod raw;
mod subscribing;
