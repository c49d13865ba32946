//! Counters of the control plane: it pushes the values about once a second, so that no scrape waits for it.
use parking_lot::Mutex;
use std::collections::HashMap;

/// Names in `specs/metrics.toml`.
const NAMES: [&str; 6] = [
    "event_loop_lag_nanos",
    "commands_applied",
    "commands_apply_nanos",
    "log_messages_info",
    "log_messages_warning",
    "log_messages_error",
];

/// The latest values; 0 until the first push.
#[derive(Debug, Default)]
pub struct Reported(Mutex<[u64; NAMES.len()]>);

impl Reported {
    /// Takes values by name; those that are absent stay.
    ///
    /// # Errors
    /// A name that is none of them; nothing was taken.
    pub(crate) fn set(&self, values: &HashMap<String, u64>) -> Result<(), String> {
        if let Some(name) = values.keys().find(|name| !NAMES.contains(&name.as_str())) {
            return Err(format!(
                "{name} is not a value that the control plane reports"
            ));
        }
        for (name, value) in NAMES.iter().zip(self.0.lock().iter_mut()) {
            *value = values.get(*name).copied().unwrap_or(*value);
        }
        Ok(())
    }

    /// Name and value of each.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.into_iter().zip(*self.0.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_until_they_are_replaced_and_unknown_ones_are_refused() {
        let reported = Reported::default();
        let named = |name: &str, value| HashMap::from([(name.to_owned(), value)]);
        reported.set(&named("commands_applied", 3)).unwrap();
        reported.set(&named("log_messages_error", 1)).unwrap();
        assert!(reported.set(&named("commands", 9)).is_err());
        let values: HashMap<_, _> = reported.values().collect();
        assert_eq!(
            (values["commands_applied"], values["log_messages_error"]),
            (3, 1)
        );
        assert_eq!(values.values().sum::<u64>(), 4);
    }
}
