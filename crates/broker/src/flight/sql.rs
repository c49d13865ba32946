//! Flight SQL is not offered: its clients get a sentence that says what to use instead.
//!
//! They pack each of their commands into a `google.protobuf.Any`, where this service takes JSON.
use super::refusal::unimplemented;
use prost::Message;
use tonic::Status;

/// What the type of every Flight SQL message begins with, after `type.googleapis.com/`.
const PACKAGE: &str = "arrow.flight.protocol.sql.";

/// The actions of Flight SQL and of the sessions that its clients open.
const ACTIONS: [&str; 13] = [
    "BeginSavepoint",
    "BeginTransaction",
    "CancelFlightInfo",
    "CancelQuery",
    "ClosePreparedStatement",
    "CloseSession",
    "CreatePreparedStatement",
    "CreatePreparedSubstraitPlan",
    "EndSavepoint",
    "EndTransaction",
    "GetSessionOptions",
    "RenewFlightEndpoint",
    "SetSessionOptions",
];

/// The part of `google.protobuf.Any` that matters.
#[derive(Clone, PartialEq, Message)]
struct Packed {
    #[prost(string, tag = "1")]
    type_url: String,
}

/// Refuses a command, a ticket or an action body that is a message of Flight SQL; any other passes.
///
/// # Errors
/// `UNIMPLEMENTED`.
pub fn check_document(bytes: &[u8]) -> Result<(), Status> {
    let packed = Packed::decode(bytes).unwrap_or_default();
    let name = packed.type_url.rsplit('/').next().unwrap_or_default();
    match name.strip_prefix(PACKAGE) {
        Some(command) => Err(refusal(command)),
        None => Ok(()),
    }
}

/// Refuses an action of Flight SQL by its name; any other passes.
///
/// # Errors
/// `UNIMPLEMENTED`.
pub fn check_action(name: &str) -> Result<(), Status> {
    if ACTIONS.contains(&name) {
        Err(refusal(name))
    } else {
        Ok(())
    }
}

fn refusal(command: &str) -> Status {
    unimplemented(&format!(
        "Flight SQL is not offered ({command:?}): read a stream as a table with GetFlightInfo of the path [stream] and DoGet, and \
         query the record batches where they are read, for example with Spark (format bascule), DuckDB or Polars"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn messages_of_flight_sql_are_refused_by_name() {
        let mut packed = Packed {
            type_url: "type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
                .to_owned(),
        }
        .encode_to_vec();
        // Field 2, the packed message.
        packed.extend([0x12, 2, 0x0A, 0]);
        let status = check_document(&packed).unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
        assert!(status.message().contains("CommandStatementQuery"));
        assert_eq!(
            check_action("BeginTransaction").unwrap_err().code(),
            Code::Unimplemented
        );
    }

    #[test]
    fn other_documents_and_actions_pass() {
        let foreign = Packed {
            type_url: "type.googleapis.com/other.Command".to_owned(),
        };
        for bytes in [&b"{\"stream\":\"s\"}"[..], b"", &foreign.encode_to_vec()] {
            check_document(bytes).unwrap();
        }
        check_action("offsets").unwrap();
    }
}
