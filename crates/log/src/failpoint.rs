//! Named points in the code at which a test can kill the process, delay it, or fail a step (reliability §4.1).
//!
//! Only with the feature `failpoints`; without it every call is an empty inline function. `specs/failpoints.toml` lists
//! the names. An action is what the crate `fail` understands, `[<percent>%][<count>*]<action>[(<argument>)]`:
//!
//! | Action | What happens |
//! |---|---|
//! | `sleep(ms)`, `delay(ms)`, `pause` | the thread waits |
//! | `return(abort)` | the process dies at once, as by a kill |
//! | `return(EIO)`, `return(ENOSPC)`, `return(EMFILE)`, `return(EROFS)` | the step fails so, where it can fail |
//!
//! `set_from_environment` reads `FAILPOINTS`: `<name>=<action>` pairs with `;` between.

/// A point at which an I/O step may be made to fail.
#[cfg(not(feature = "failpoints"))]
#[allow(clippy::inline_always, clippy::unnecessary_wraps)] // nothing may be left of it
#[inline(always)]
pub fn check(_name: &'static str) -> std::io::Result<()> {
    Ok(())
}

/// A point at which the process may be ended or delayed, but no step can fail.
#[cfg(not(feature = "failpoints"))]
#[allow(clippy::inline_always)] // nothing may be left of it
#[inline(always)]
pub fn pass(_name: &'static str) {}

#[cfg(feature = "failpoints")]
pub use enabled::{check, fired, pass, set_from_environment};

#[cfg(feature = "failpoints")]
mod enabled {
    use parking_lot::Mutex;
    use rustix::io::Errno;
    use std::collections::BTreeMap;
    use std::io;

    static FIRED: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

    /// A point at which an I/O step may be made to fail.
    pub fn check(name: &'static str) -> io::Result<()> {
        let Some(argument) = fail::eval(name, Option::unwrap_or_default) else {
            return Ok(());
        };
        *FIRED.lock().entry(name).or_default() += 1;
        match argument.as_str() {
            "abort" => {
                eprintln!("failpoint {name}: abort");
                std::process::abort()
            }
            "EIO" => Err(Errno::IO.into()),
            "ENOSPC" => Err(Errno::NOSPC.into()),
            "EDQUOT" => Err(Errno::DQUOT.into()),
            "EMFILE" => Err(Errno::MFILE.into()),
            "EROFS" => Err(Errno::ROFS.into()),
            _ => Ok(()),
        }
    }

    /// A point at which the process may be ended or delayed.
    pub fn pass(name: &'static str) {
        // No step can fail here: only an end of the process or a pause has an effect.
        let _ = check(name);
    }

    /// How often each point fired since the start; pauses are not counted.
    pub fn fired() -> Vec<(&'static str, u64)> {
        FIRED
            .lock()
            .iter()
            .map(|(name, count)| (*name, *count))
            .collect()
    }

    /// Sets the points named in the environment variable `FAILPOINTS`.
    ///
    /// # Errors
    /// Names the pair that is not a valid `<name>=<action>`.
    pub fn set_from_environment() -> Result<(), String> {
        let pairs = std::env::var("FAILPOINTS").unwrap_or_default();
        for pair in pairs
            .split(';')
            .map(str::trim)
            .filter(|pair| !pair.is_empty())
        {
            let (name, action) = pair
                .split_once('=')
                .ok_or_else(|| format!("failpoint \"{pair}\" is not a valid <name>=<action>"))?;
            fail::cfg(name.trim(), action.trim())
                .map_err(|reason| format!("failpoint \"{pair}\": {reason}"))?;
        }
        Ok(())
    }
}
