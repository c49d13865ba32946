//! A line of the log, written without the control plane, as `bascule.logs` writes them.
use super::LogStyle;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Name of the logger.
const TARGET: &str = "bascule.watchdog";

/// Writes a line of level *error* to standard error; `stack` may be empty.
pub(super) fn write(style: LogStyle, message: &str, fields: &serde_json::Value, stack: &str) {
    let text = line(style, SystemTime::now(), message, fields, stack);
    // Whoever closed standard error does not want it.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

fn line(
    style: LogStyle,
    now: SystemTime,
    message: &str,
    fields: &serde_json::Value,
    stack: &str,
) -> String {
    let time = time_of(now);
    match style {
        LogStyle::Json => {
            let mut line = serde_json::json!({
                "time": format!("{time}+00:00"),
                "level": "error",
                "target": TARGET,
                "message": message,
            });
            if let (Some(line), Some(fields)) = (line.as_object_mut(), fields.as_object()) {
                line.extend(fields.clone());
                if !stack.is_empty() {
                    line.insert("stack".into(), stack.into());
                }
            }
            format!("{line}\n")
        }
        LogStyle::Text => {
            let clock = time.split_once('T').map_or("", |(_, clock)| clock);
            let mut line = format!("{clock} error   {TARGET}: {message}");
            for (key, value) in fields.as_object().into_iter().flatten() {
                // Writing to a string cannot fail.
                let _ = write!(line, " {key}={value}");
            }
            line.push('\n');
            line.push_str(stack);
            if !stack.is_empty() && !stack.ends_with('\n') {
                line.push('\n');
            }
            line
        }
    }
}

/// `2026-11-25T03:04:05.678`, UTC.
fn time_of(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date_of(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        since.subsec_millis()
    )
}

/// Year, month and day of the Gregorian calendar, of a day counted from 1970-01-01.
fn date_of(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000"),
            (951_782_399, "2000-02-28T23:59:59.000"),
            (951_782_400, "2000-02-29T00:00:00.000"),
            (951_868_800, "2000-03-01T00:00:00.000"),
            (1_735_689_599, "2024-12-31T23:59:59.000"),
            (4_107_542_400, "2100-03-01T00:00:00.000"),
        ] {
            assert_eq!(time_of(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn lines_look_like_those_of_the_control_plane() {
        let at = UNIX_EPOCH + Duration::from_millis(1_500);
        let fields = serde_json::json!({"silent_s": 5.5});
        let json = line(LogStyle::Json, at, "blocked", &fields, "File \"x\"\n");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "time": "1970-01-01T00:00:01.500+00:00", "level": "error", "target": "bascule.watchdog",
                "message": "blocked", "silent_s": 5.5, "stack": "File \"x\"\n",
            })
        );
        let text = line(LogStyle::Text, at, "blocked", &fields, "File \"x\"");
        assert_eq!(
            text,
            "00:00:01.500 error   bascule.watchdog: blocked silent_s=5.5\nFile \"x\"\n"
        );
    }
}
