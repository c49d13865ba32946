//! All messages and enums of the API, as prost structs (derived in source: no protoc), after `specs/proto/liftbridge.proto`.
//!
//! Fields of type `bytes` are [`bytes::Bytes`]; maps are ordered, so that encoding is stable. Enum fields are `i32`, as sent;
//! prost adds getters that fall back to the default for unknown numbers.
mod activity;
mod groups;
mod metadata;
mod publishing;
mod reading;
mod streams;

pub use activity::*;
pub use groups::*;
pub use metadata::*;
pub use publishing::*;
pub use reading::*;
pub use streams::*;
