//! Tests of the Liftbridge service.
mod framing;
mod positions;
