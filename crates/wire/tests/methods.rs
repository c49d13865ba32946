//! The generated table of methods.
use bascule_wire::methods::{ADMIN, API, Action, METHODS, Method};

#[test]
fn each_path_is_found_at_its_place() {
    for (place, method) in METHODS.iter().enumerate() {
        assert_eq!(Method::index(method.path), Some(place));
        assert_eq!(Method::of(method.path), Some(method));
        assert_eq!(
            method.path,
            format!("/{}/{}", method.service(), method.name())
        );
    }
    for path in [
        "",
        "/",
        "/proto.API",
        "/proto.API/Nothing",
        "proto.API/Publish",
    ] {
        assert_eq!(Method::index(path), None, "{path}");
    }
}

#[test]
fn a_name_of_ours_is_enough_to_find_a_method() {
    let services = [("Publish", API), ("TrimPartition", ADMIN)];
    for (name, service) in services {
        assert_eq!(Method::named(name).unwrap().service(), service);
    }
    assert_eq!(Method::named("DoPut"), None, "Flight's are not ours");
    for method in METHODS.iter().filter(|method| method.is_ours) {
        assert_eq!(Method::named(method.name()), Some(method));
        assert_eq!(
            method.handler.is_none(),
            method.service() == API && in_data_plane(method.name())
        );
    }
}

fn in_data_plane(name: &str) -> bool {
    name.starts_with("Publish") || name.ends_with("Cursor") || name == "Subscribe"
}

#[test]
fn an_action_is_read_by_its_exact_name() {
    for action in Action::ALL {
        assert_eq!(Action::of(action.name()), Some(action));
    }
    assert_eq!(Action::of("publish"), None);
}
