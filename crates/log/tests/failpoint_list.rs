//! `specs/failpoints.toml` and the code name the same failpoints.
#![allow(clippy::unwrap_used)] // a test fails by a panic
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Every name in quotes after `failpoint::pass(` or `failpoint::check(` in the sources below `directory`.
fn named_in(directory: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            named_in(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            for call in ["failpoint::pass(", "failpoint::check("] {
                for after in text.split(call).skip(1) {
                    let name = after.trim_start().strip_prefix('"').unwrap();
                    names.insert(name.split('"').next().unwrap().to_owned());
                }
            }
        }
    }
}

#[test]
fn the_list_of_failpoints_is_complete_and_true() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let list = fs::read_to_string(root.join("specs/failpoints.toml")).unwrap();
    let listed: BTreeSet<String> = list
        .lines()
        .filter_map(|line| Some(line.strip_prefix('"')?.split('"').next()?.to_owned()))
        .collect();
    let mut named = BTreeSet::new();
    for member in ["log", "broker"] {
        named_in(&root.join("crates").join(member).join("src"), &mut named);
    }
    assert!(named.len() >= 18, "{named:?}");
    assert_eq!(listed, named);
}
