//! The table and the refusals; that it equals a naive reading of policies is tested from Python's side.
use super::*;

fn table(json: &str) -> AccessTable {
    AccessTable::read(json.as_bytes()).unwrap()
}

fn named(name: &str) -> Peer {
    Peer {
        address: None,
        identity: Some(name.into()),
    }
}

const POLICY: &str = r#"{
    "clients": {
        "a": {"Publish": {"allow": {"exact": ["s"], "prefixes": ["t."]}, "deny": {"prefixes": ["t.x"]}}},
        "root": {"Publish": {"allow": {"prefixes": [""]}}}
    },
    "everyone": {
        "FetchMetadata": {"allow": {"exact": ["*"]}},
        "Publish": {"deny": {"exact": ["secret"]}}
    }
}"#;

#[test]
fn what_no_rule_allows_is_denied() {
    let table = table(POLICY);
    for (client, action, resource, allowed) in [
        ("a", Action::Publish, "s", true),
        ("a", Action::Publish, "ss", false),
        ("a", Action::Publish, "t.1", true),
        ("a", Action::Publish, "t.x1", false),
        ("a", Action::Subscribe, "s", false),
        ("a", Action::FetchMetadata, "*", true),
        ("a", Action::Publish, "secret", false),
        ("root", Action::Publish, "secret", false),
        ("root", Action::Publish, "", true),
        ("b", Action::FetchMetadata, "*", true),
        ("b", Action::Publish, "s", false),
    ] {
        assert_eq!(
            table.allows(client, action, resource),
            allowed,
            "{client} {action:?} {resource}"
        );
    }
}

#[test]
fn a_rule_that_denies_counts_for_clients_whose_rights_are_elsewhere() {
    let access = Access::default();
    let (peer, a, b) = (Peer::default(), Arc::from("a"), Arc::from("b"));
    assert!(!access.denies(&peer, &a, Action::Publish, "t.x1"));
    access.set_table(Some(table(POLICY)));
    assert!(access.denies(&peer, &a, Action::Publish, "t.x1"));
    assert!(access.denies(&peer, &b, Action::Publish, "secret"));
    assert!(!access.denies(&peer, &b, Action::Publish, "s"));
    assert!(!access.denies(&peer, &b, Action::Subscribe, "secret"));
    assert_eq!(access.denied(), 2);
}

#[test]
fn documents_that_are_none_are_refused() {
    for (json, reason) in [
        ("", "EOF"),
        ("{}", "clients"),
        (r#"{"clients": {}}"#, "everyone"),
        (r#"{"clients": {}, "everyone": {"Publsh": {}}}"#, "Publsh"),
        (
            r#"{"clients": {}, "everyone": {"Publish": {"alow": {}}}}"#,
            "alow",
        ),
    ] {
        let error = AccessTable::read(json.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(reason), "{json}: {error}");
    }
}

#[test]
fn without_a_table_everything_is_allowed_and_with_one_a_name_is_needed() {
    let access = Access::default();
    let nobody = Peer::default();
    access.check(&nobody, Action::Publish, "s").unwrap();
    access.set_table(Some(table(POLICY)));
    let nameless = access.check(&nobody, Action::Publish, "s").unwrap_err();
    assert_eq!(nameless.to_string(), "api: Failed to retrieve client ID");
    assert_eq!(nameless.status().code(), tonic::Code::Unauthenticated);
    access.check(&named("a"), Action::Publish, "s").unwrap();
    let denied = access.check(&named("b"), Action::Publish, "s").unwrap_err();
    let status = denied.status();
    assert_eq!(status.code(), tonic::Code::PermissionDenied);
    assert_eq!(
        status.message(),
        "The client is not authorized to call Publish on resource s"
    );
    access.set_table(None);
    access.check(&nobody, Action::Publish, "s").unwrap();
}

#[test]
fn an_authorization_ends_with_the_table_that_takes_it_away() {
    let access = Access::default();
    access.set_table(Some(table(POLICY)));
    let mut authorization = access
        .authorize(&named("a"), &[(Action::Publish, "s")])
        .unwrap();
    authorization.renew(&access).unwrap();
    access.set_table(Some(table(POLICY)));
    authorization.renew(&access).unwrap();
    access.set_table(Some(AccessTable::default()));
    authorization.renew(&access).unwrap_err();
    assert!(
        access
            .authorize(&named("a"), &[(Action::Publish, "s")])
            .is_err()
    );
    access.set_table(None);
    authorization.renew(&access).unwrap();
}

#[test]
fn an_authorization_of_several_rights_needs_each_of_them_all_the_time() {
    let access = Access::default();
    let both = [(Action::Subscribe, "s"), (Action::Publish, "t")];
    let one = r#"{"clients": {"a": {"Subscribe": {"allow": {"exact": ["s"]}}}}, "everyone": {}}"#;
    let mut authorization = access.authorize(&named("a"), &both).unwrap();
    access.set_table(Some(table(one)));
    let text = "The client is not authorized to call Publish on resource t";
    assert_eq!(authorization.renew(&access).unwrap_err().to_string(), text);
    let denied = access.authorize(&named("a"), &both).unwrap_err();
    assert_eq!(denied.to_string(), text);
    access.authorize(&named("a"), &both[..1]).unwrap();
}

#[test]
fn an_ack_to_a_subject_other_than_an_inbox_needs_the_right_to_publish_there() {
    let access = Access::default();
    access.check_inbox(&named("a"), "ns", "orders").unwrap();
    access.set_table(Some(table(
        r#"{"clients": {"a": {"PublishToSubject": {"allow": {"exact": ["orders"]}}}}, "everyone": {}}"#,
    )));
    for (inbox, allowed) in [
        ("_INBOX.x", true),
        ("ns.ack.x", true),
        ("orders", true),
        ("other.ack.x", false),
        ("ns.acks", false),
        ("ns.cursors", false),
        ("_INBOX", false),
        ("payments", false),
    ] {
        let decided = access.check_inbox(&named("a"), "ns", inbox);
        assert_eq!(decided.is_ok(), allowed, "{inbox}");
    }
}

#[test]
fn a_refusal_is_short_enough_for_a_header() {
    let access = Access::default();
    access.set_table(Some(AccessTable::default()));
    let long = "s".repeat(1 << 20);
    let denied = access.check(&named("a"), Action::Publish, &long);
    assert!(denied.unwrap_err().to_string().len() < 2048);
}

#[test]
fn streams_of_other_namespaces_are_resources_of_their_own() {
    assert_eq!(stream_resource(DEFAULT_NAMESPACE, "s"), "s");
    assert_eq!(stream_resource("n", "s"), "n/s");
}
