//! Passes to the module which Cargo profile built it.
use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // target/<profile>/build/<package>/out; the profile `dev` lies in `debug`.
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    let profile = Path::new(&out).ancestors().nth(3).and_then(Path::file_name);
    let profile = profile.and_then(|name| name.to_str()).unwrap_or("unknown");
    println!("cargo:rustc-env=BASCULE_PROFILE={profile}");
}
