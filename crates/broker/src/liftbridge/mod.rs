//! The Liftbridge service: hot methods over raw bodies, admin methods forwarded to the control plane.
