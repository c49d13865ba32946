//! The messages and enums of the API that the data plane and the client read or write, as prost structs (derived in source: no
//! protoc), after `specs/proto/liftbridge.proto`. Those of methods that the control plane answers pass as bytes.
//!
//! Fields of type `bytes` are [`bytes::Bytes`]; maps are ordered, so that encoding is stable. Enum fields are `i32`, as sent;
//! prost adds getters that fall back to the default for unknown numbers.
mod cursors;
mod publishing;
mod reading;

pub use cursors::*;
pub use publishing::*;
pub use reading::*;
