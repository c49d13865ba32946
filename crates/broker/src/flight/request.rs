//! The JSON documents that clients send: descriptors, tickets, put commands (`specs/formats/flight.md`).
//!
//! Every document refuses unknown keys; errors name the key and the value.
use super::refusal::invalid;
use super::sql;
use crate::names::DEFAULT_NAMESPACE;
use crate::stage::{Attempt, PieceId, Token};
use bascule_record::Producer;
use serde::de::{self, Deserializer};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use tonic::Status;

/// Where a scan begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// At this offset, inclusive.
    Offset(u64),
    /// At the log start offset.
    #[default]
    Earliest,
    /// At the high watermark.
    Latest,
    /// At the first record whose timestamp is not below this, ns since 1970; at the high watermark when there is none.
    Time(i64),
    /// This many offsets before the high watermark, or at the log start.
    Last(u64),
}

/// Where a scan ends, exclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// At the high watermark of the moment of the call, or never when the scan follows.
    #[default]
    Open,
    /// Before this offset.
    Offset(u64),
    /// At the high watermark of the moment of the call.
    Latest,
    /// Before the first record whose timestamp is not below this, ns since 1970; at the high watermark when there is none.
    Time(i64),
}

/// The command of a flight descriptor.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// Namespace.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Stream.
    pub stream: String,
    /// Partition numbers; absent = all.
    #[serde(default)]
    pub partitions: Option<Vec<u32>>,
    /// Column names in order; absent = the default ones.
    #[serde(default)]
    pub columns: Option<Vec<String>>,
    /// Subject filter.
    #[serde(default)]
    pub subject: Option<String>,
    /// Start of every partition.
    #[serde(default)]
    pub start: Start,
    /// End of every partition.
    #[serde(default)]
    pub end: End,
}

/// What a ticket says: one scan of one partition.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScanTicket {
    /// Namespace.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Stream.
    pub stream: String,
    /// Partition number.
    pub partition: u32,
    /// The incarnation the offsets belong to; absent = whichever there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<u64>,
    /// The history that the offsets belong to; absent = whichever there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<Expectation>,
    /// Start.
    #[serde(default)]
    pub start: Start,
    /// End, exclusive.
    #[serde(default)]
    pub end: End,
    /// Column names in order; absent = the default ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// Subject filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// How long to wait for the first record, ms; 0 = not at all.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wait_ms: u64,
    /// Whether the scan follows new records until it is cancelled.
    #[serde(default, skip_serializing_if = "is_false")]
    pub follow: bool,
    /// Most rows to return; absent = no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rows: Option<u64>,
    /// Return no further batch once this many bytes of columns were returned; absent = no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

/// The command of a `DoPut` descriptor.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutCommand {
    /// Namespace.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Stream.
    pub stream: String,
    /// Partition number; absent = the one that each row says, else by key.
    #[serde(default)]
    pub partition: Option<u32>,
    /// Incarnation that must be there; absent = whichever there is.
    #[serde(default)]
    pub incarnation: Option<u64>,
    /// Idempotent producer.
    #[serde(default)]
    pub producer: Option<ProducerCommand>,
    /// Whether copies go out on NATS.
    #[serde(default)]
    pub nats_copy: bool,
    /// Rows are staged for a sink, not appended.
    #[serde(default)]
    pub stage: Option<StageCommand>,
}

/// Whose rows a call stages.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageCommand {
    /// Id of the sink's record.
    pub sink: u64,
    /// Generation of the sink.
    pub generation: u64,
    /// Spark's batch id.
    pub epoch: u64,
    /// Token of the attempt to write the epoch.
    pub token: Token,
    /// Task partition.
    pub task: u32,
    /// Attempt of the task, another for each call.
    pub attempt: u64,
}

/// Most tasks of an epoch.
const MAX_TASKS: u32 = 10_000;
/// Highest epoch.
const MAX_EPOCH: u64 = i64::MAX as u64;

impl PutCommand {
    /// Refuses values and keys that contradict each other.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`.
    pub fn check(&self) -> Result<(), Status> {
        match self.producer.map(|producer| producer.id) {
            Some(0) => {
                return Err(invalid(
                    "producer id 0 stands for none: choose another".to_owned(),
                ));
            }
            Some(id) if id >= Producer::FIRST_SINK_ID => {
                return Err(invalid(format!(
                    "producer id {id} is not below 2^63: higher ones are those of sinks"
                )));
            }
            _ => {}
        }
        let Some(stage) = &self.stage else {
            return Ok(());
        };
        if self.producer.is_some() || self.nats_copy {
            return Err(invalid(
                "stage goes with neither producer nor nats_copy".to_owned(),
            ));
        }
        stage.check()
    }
}

impl StageCommand {
    fn check(&self) -> Result<(), Status> {
        let bounds = [
            ("task", u64::from(self.task), u64::from(MAX_TASKS - 1)),
            ("epoch", self.epoch, MAX_EPOCH),
            ("sink", self.sink, self.generation),
        ];
        for (name, value, most) in bounds {
            if value > most {
                let remedy = match name {
                    "task" => "; write the epoch with fewer partitions",
                    "sink" => ", the generation: a record is not younger than its generations",
                    _ => "",
                };
                return Err(invalid(format!(
                    "stage.{name} is {value}, and at most {most}{remedy}"
                )));
            }
        }
        Ok(())
    }

    /// The piece that the call makes in each partition.
    pub fn piece(&self) -> PieceId {
        PieceId {
            sink: self.sink,
            attempt: Attempt {
                generation: self.generation,
                epoch: self.epoch,
                token: self.token,
            },
            task: self.task,
            task_attempt: self.attempt,
        }
    }
}

/// Identity and first sequence of an idempotent producer.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProducerCommand {
    /// Producer id, not 0.
    pub id: u64,
    /// Generation.
    #[serde(default)]
    pub epoch: u32,
    /// Sequence of the first row of the call.
    pub base_sequence: u32,
}

/// The body of the `offsets` action.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OffsetsRequest {
    /// Namespace.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Stream.
    pub stream: String,
    /// Partition numbers; absent = all.
    #[serde(default)]
    pub partitions: Option<Vec<u32>>,
    /// Times to look up.
    #[serde(default)]
    pub times: Vec<TimeLookup>,
    /// How long to wait for something beyond `beyond`, ms.
    #[serde(default)]
    pub wait_ms: u64,
    /// Offsets by partition number that the caller has: the wait ends when a high watermark is above its entry, or when a
    /// partition has none.
    #[serde(default)]
    pub beyond: BTreeMap<u32, u64>,
    /// Offsets whose preceding record is identified.
    #[serde(default)]
    pub before: Vec<PartitionOffset>,
}

/// One offset of one partition.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionOffset {
    /// Partition number.
    pub partition: u32,
    /// Offset.
    pub offset: u64,
}

/// What a reader remembers of the log that it read.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// An offset, at most the high watermark.
    pub offset: u64,
    /// Link of the batch that holds the record before it.
    pub link: u32,
}

/// One time to look up.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeLookup {
    /// Partition number.
    pub partition: u32,
    /// Time, ns since 1970.
    pub time_ns: i64,
}

/// Reads a document.
///
/// # Errors
/// `INVALID_ARGUMENT` that names `what`, the key and the value; `UNIMPLEMENTED` for what clients of Flight SQL send.
pub fn parse<'a, T: Deserialize<'a>>(what: &str, bytes: &'a [u8]) -> Result<T, Status> {
    sql::check_document(bytes)?;
    serde_json::from_slice(bytes).map_err(|error| invalid(format!("{what} is not valid: {error}")))
}

fn default_namespace() -> String {
    DEFAULT_NAMESPACE.to_owned()
}
#[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde asks for
fn is_zero(n: &u64) -> bool {
    *n == 0
}
#[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde asks for
fn is_false(b: &bool) -> bool {
    !*b
}

/// The one member of `{"name": integer}`.
fn single_member(value: &Value) -> Option<(&str, &serde_json::Number)> {
    let object = value.as_object()?;
    let (name, member) = object.iter().next().filter(|_| object.len() == 1)?;
    Some((name, member.as_number()?))
}

impl<'de> Deserialize<'de> for Start {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let parsed = match &value {
            Value::Null => Some(Self::Earliest),
            Value::Number(n) => n.as_u64().map(Self::Offset),
            Value::String(s) if s == "earliest" => Some(Self::Earliest),
            Value::String(s) if s == "latest" => Some(Self::Latest),
            _ => match single_member(&value) {
                Some(("time_ns", n)) => n.as_i64().map(Self::Time),
                Some(("last", n)) => n.as_u64().map(Self::Last),
                _ => None,
            },
        };
        parsed.ok_or_else(|| {
            de::Error::custom(format!(r#"start {value} is none of: an offset ≥ 0, "earliest", "latest", {{"time_ns": integer}}, {{"last": integer ≥ 0}}"#))
        })
    }
}
impl Serialize for Start {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Offset(offset) => serializer.serialize_u64(*offset),
            Self::Earliest => serializer.serialize_str("earliest"),
            Self::Latest => serializer.serialize_str("latest"),
            Self::Time(time) => member(serializer, "time_ns", time),
            Self::Last(count) => member(serializer, "last", count),
        }
    }
}
impl<'de> Deserialize<'de> for End {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let parsed = match &value {
            Value::Null => Some(Self::Open),
            Value::Number(n) => n.as_u64().map(Self::Offset),
            Value::String(s) if s == "latest" => Some(Self::Latest),
            _ => match single_member(&value) {
                Some(("time_ns", n)) => n.as_i64().map(Self::Time),
                _ => None,
            },
        };
        parsed.ok_or_else(|| {
            de::Error::custom(format!(
                r#"end {value} is none of: null, an offset ≥ 0, "latest", {{"time_ns": integer}}"#
            ))
        })
    }
}
impl Serialize for End {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Open => serializer.serialize_none(),
            Self::Offset(offset) => serializer.serialize_u64(*offset),
            Self::Latest => serializer.serialize_str("latest"),
            Self::Time(time) => member(serializer, "time_ns", time),
        }
    }
}

fn member<S: Serializer, T: Serialize>(
    serializer: S,
    name: &str,
    value: &T,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(1))?;
    map.serialize_entry(name, value)?;
    map.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_start_and_end_is_read_and_written_alike() {
        for text in [
            "17",
            r#""earliest""#,
            r#""latest""#,
            r#"{"time_ns":-5}"#,
            r#"{"last":10}"#,
        ] {
            let start: Start = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&start).unwrap(), text);
        }
        for text in ["17", "null", r#""latest""#, r#"{"time_ns":9}"#] {
            let end: End = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&end).unwrap(), text);
        }
    }

    #[test]
    fn an_invalid_position_is_rejected_with_its_value() {
        for text in [
            "-1",
            "1.5",
            r#""soon""#,
            "{}",
            r#"{"last":-1}"#,
            r#"{"last":1,"time_ns":2}"#,
            "[1]",
            "true",
        ] {
            let error = serde_json::from_str::<Start>(text).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        assert!(serde_json::from_str::<End>(r#""earliest""#).is_err());
        assert!(serde_json::from_str::<End>(r#"{"last":1}"#).is_err());
    }

    #[test]
    fn a_ticket_needs_stream_and_partition_and_refuses_unknown_keys() {
        let ticket: ScanTicket = parse("ticket", br#"{"stream":"s","partition":0}"#).unwrap();
        assert_eq!(
            (
                ticket.namespace.as_str(),
                ticket.start,
                ticket.end,
                ticket.follow
            ),
            ("default", Start::Earliest, End::Open, false)
        );
        let error = parse::<ScanTicket>("ticket", br#"{"stream":"s"}"#).unwrap_err();
        assert!(error.message().contains("partition"), "{error}");
        let error = parse::<ScanTicket>("ticket", br#"{"stream":"s","partition":0,"colums":[]}"#)
            .unwrap_err();
        assert!(error.message().contains("colums"), "{error}");
    }

    #[test]
    fn partition_numbers_of_beyond_are_keys() {
        let request: OffsetsRequest = parse(
            "body",
            br#"{"stream":"s","beyond":{"0":7,"12":9},"wait_ms":5}"#,
        )
        .unwrap();
        assert_eq!(request.beyond, BTreeMap::from([(0, 7), (12, 9)]));
        assert!(parse::<OffsetsRequest>("body", br#"{"stream":"s","beyond":{"x":7}}"#).is_err());
    }
}
