//! The native core of the SDK: publish and subscribe over the Liftbridge protocol.
