//! All messages and enums of §2.2 and §2.3, as prost structs (derive in source: no protoc).
