//! Names that the broker itself gives.

/// The namespace that Liftbridge's streams live in.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The stream that positions are stored in.
pub const CURSORS: &str = "__cursors";
/// The stream of what happened.
const ACTIVITY: &str = "__activity";

/// Whether a stream of the default namespace is the broker's own: nobody else writes to it.
pub fn is_internal(stream: &str) -> bool {
    stream == CURSORS || stream == ACTIVITY
}
