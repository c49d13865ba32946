//! The golden batches of `specs/vectors/batch` are read field by field, and built again byte by byte.
//!
//! They were made by an encoder that shares no code with this crate, and never change: what they hold is on disks.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]
mod support;

use bascule_record::crypt::{DataKey, Entropy, EntropyError, KeyLack, KeyRing, Sealer};
use bascule_record::{
    Batch, BatchBuilder, BatchLimits, Codec, DamageError, Header, Producer, Stamp,
};
use bytes::Bytes;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use support::{OWN, OwnedHeader, OwnedRecord, read_all};

/// Every vector and its header checksum, which covers the payload checksum too.
const VECTORS: [(&str, u32); 21] = [
    ("one-value", 0x577d_3e4b),
    ("no-columns", 0xad4b_3573),
    ("timestamps", 0x7fd9_be79),
    ("nulls", 0x5d4f_f74f),
    ("nulls-only", 0x4c36_e30c),
    ("keys", 0x4f7e_53fe),
    ("headers", 0x173a_fc71),
    ("subject-constant", 0x0491_c530),
    ("subjects", 0xfd73_fc4a),
    ("replies", 0x0d0a_b30c),
    ("ids", 0x6926_4519),
    ("origin-times", 0x7ca6_317f),
    ("producer", 0xce4d_f36b),
    ("all-columns", 0xace6_cad0),
    ("rewritten", 0x58c9_b9cd),
    ("rewritten-empty", 0xd318_a651),
    ("encrypted", 0x2842_4546),
    ("encrypted-columns", 0x6729_58d0),
    ("encrypted-zstd", 0xd03f_2674),
    ("lz4", 0xfd54_a776),
    ("zstd", 0xc03d_3eba),
];

/// Random bytes that are known beforehand.
#[derive(Debug)]
struct Given([u8; 12]);
impl Entropy for Given {
    fn fill(&self, out: &mut [u8]) -> Result<(), EntropyError> {
        out.copy_from_slice(&self.0[..out.len()]);
        Ok(())
    }
}

struct Vector {
    name: &'static str,
    json: Value,
    bytes: Bytes,
}

impl Vector {
    fn load(name: &'static str) -> Self {
        let text = std::fs::read_to_string(directory().join(format!("{name}.json"))).expect(name);
        let json: Value = serde_json::from_str(&text).expect(name);
        let bytes = Bytes::from(from_hex(&json["bytes"]));
        Self { name, json, bytes }
    }

    fn all() -> impl Iterator<Item = Self> {
        VECTORS.iter().map(|(name, _)| Self::load(name))
    }

    fn is_refused(&self) -> bool {
        self.json["refused"].as_bool().unwrap_or(false)
    }

    fn data_key(&self) -> Option<DataKey> {
        let hex = self.json.get("data_key")?;
        let secret = from_hex(hex).try_into().expect(self.name);
        DataKey::new(self.json["header"]["key_id"].as_u64()? as u32, &secret)
    }

    fn open(&self) -> Batch {
        let keys = self.data_key().map(|key| (key.id(), Ok(key)));
        Batch::open(&self.bytes, &KeyRing::new(keys)).expect(self.name)
    }

    /// Offsets and records as the file lists them.
    fn records(&self) -> (Vec<u64>, Vec<OwnedRecord>) {
        let list = self.json["records"].as_array().expect(self.name);
        (
            list.iter()
                .map(|record| record["offset"].as_u64().unwrap())
                .collect(),
            list.iter().map(record).collect(),
        )
    }
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../specs/vectors/batch")
}

fn from_hex(json: &Value) -> Vec<u8> {
    let text = json.as_str().unwrap();
    assert_eq!(text.len() % 2, 0);
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

fn record(json: &Value) -> OwnedRecord {
    let optional_bytes = |json: &Value| (!json.is_null()).then(|| from_hex(json));
    let optional_text = |json: &Value| json.as_str().map(str::to_owned);
    let kind = |json: &Value| u8::try_from(json.as_u64().unwrap()).unwrap();
    let header = |json: &Value| OwnedHeader {
        key_kind: kind(&json["key_kind"]),
        key: from_hex(&json["key"]),
        value_kind: kind(&json["value_kind"]),
        value: from_hex(&json["value"]),
    };
    OwnedRecord {
        timestamp: json["timestamp"].as_i64().unwrap(),
        origin_time: json["origin_time"].as_i64(),
        id: u128::from_str_radix(json["id"].as_str().unwrap(), 16).unwrap(),
        key: optional_bytes(&json["key"]),
        value: optional_bytes(&json["value"]),
        headers: json["headers"]
            .as_array()
            .unwrap()
            .iter()
            .map(header)
            .collect(),
        subject: optional_text(&json["subject"]),
        reply: optional_text(&json["reply"]),
    }
}

fn producer(json: &Value) -> Option<Producer> {
    let number = |name: &str| json[name].as_u64().unwrap();
    (!json.is_null()).then(|| Producer {
        id: number("id"),
        epoch: number("epoch") as u32,
        base_sequence: number("base_sequence") as u32,
    })
}

/// Compares each field; the file has exactly these.
fn assert_header(header: &Header, json: &Value, name: &str) {
    let codec = match header.codec {
        Codec::None => "none",
        Codec::Lz4 => "lz4",
        Codec::Zstd => "zstd",
    };
    let mut expected = json.clone();
    let fields = expected.as_object_mut().unwrap();
    let mut check = |field: &str, value: Value| {
        assert_eq!(fields.remove(field), Some(value), "{name}: {field}");
    };
    check("codec", codec.into());
    check("flags", header.flags.0.into());
    check("incarnation", header.incarnation.into());
    check("partition", header.partition.into());
    check("columns", header.columns.0.into());
    check("leader_epoch", header.leader_epoch.into());
    check("base_offset", header.base_offset.into());
    check("span", header.span.into());
    check("count", header.count.into());
    check("base_timestamp", header.base_timestamp.into());
    check("max_timestamp", header.max_timestamp.into());
    check("stored_bytes", header.stored_bytes.into());
    check("raw_bytes", header.raw_bytes.into());
    check("key_id", header.key_id.into());
    check("payload_crc", header.payload_crc.into());
    check("chain", header.chain.into());
    check("kept_link", header.kept_link.into());
    check("header_crc", header.header_crc.into());
    let nonce = fields.remove("nonce").unwrap();
    assert_eq!(header.nonce.to_vec(), from_hex(&nonce), "{name}: nonce");
    assert_eq!(
        header.producer,
        producer(&fields.remove("producer").unwrap()),
        "{name}: producer"
    );
    assert!(fields.is_empty(), "{name}: {fields:?} not compared");
}

#[test]
fn no_vector_is_missing_unlisted_or_changed() {
    let mut listed: Vec<_> = VECTORS
        .iter()
        .map(|(name, _)| directory().join(name).with_extension("json"))
        .collect();
    let files = std::fs::read_dir(directory())
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut present: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    listed.sort();
    present.sort();
    assert_eq!(present, listed);
    for (name, crc) in VECTORS {
        let vector = Vector::load(name);
        let header = Header::read(&vector.bytes).expect(name);
        assert_eq!(header.header_crc, crc, "{name} is not the frozen one");
        assert_eq!(
            crc32c::crc32c(&vector.bytes[128..]),
            header.payload_crc,
            "{name} is not the frozen one"
        );
        assert_eq!(
            vector.bytes.len(),
            header.batch_bytes(),
            "{name} is not the frozen one"
        );
    }
}

#[test]
fn every_vector_reads_as_its_file_says() {
    for vector in Vector::all() {
        let name = vector.name;
        assert_header(
            &Header::read(&vector.bytes).expect(name),
            &vector.json["header"],
            name,
        );
        if vector.is_refused() {
            continue;
        }
        let batch = vector.open();
        let (offsets, records) = vector.records();
        assert_eq!(read_all(&batch), records, "{name}");
        assert_eq!(
            (0..batch.len())
                .map(|i| batch.offset(i))
                .collect::<Vec<_>>(),
            offsets,
            "{name}"
        );
    }
}

#[test]
fn an_encrypted_batch_is_refused_by_name_and_is_not_damage() {
    for name in ["encrypted", "encrypted-columns", "encrypted-zstd"] {
        let error = Batch::read(&Vector::load(name).bytes).unwrap_err();
        let lack = KeyLack::Unknown;
        assert_eq!(error, DamageError::Encrypted { key_id: 6, lack });
        assert!(error.is_unsupported() && error.is_locked());
    }
}

#[test]
fn bytes_that_are_not_a_ciphertext_do_not_open() {
    let key = Vector::load("encrypted-columns").data_key().unwrap();
    let ring = KeyRing::new([(6, Ok(key))]);
    let error = Batch::open(&Vector::load("encrypted").bytes, &ring).unwrap_err();
    assert_eq!(error, DamageError::Authentication { key_id: 6 });
    assert!(error.is_unsupported() && error.is_locked());
}

#[test]
fn every_written_vector_is_built_again_to_the_byte() {
    for vector in
        Vector::all().filter(|vector| !vector.is_refused() && vector.json["rewrite_of"].is_null())
    {
        let name = vector.name;
        let frozen = Header::read(&vector.bytes).expect(name);
        let mut builder = BatchBuilder::new(BatchLimits::default());
        for record in vector.records().1 {
            record.push_to(&mut builder).expect(name);
        }
        assert_eq!(vector.json["own_subject"], OWN);
        let sealed = builder
            .seal(frozen.codec, frozen.producer, Some(OWN))
            .expect(name);
        let place = Stamp {
            incarnation: frozen.incarnation,
            partition: frozen.partition,
            leader_epoch: frozen.leader_epoch,
            base_offset: frozen.base_offset,
            chain: frozen.chain,
            not_before: i64::MIN,
        };
        let built = match vector.data_key() {
            None => sealed.stamp(&place),
            Some(key) => {
                let mut sealer = Sealer::new(key, Arc::new(Given(frozen.nonce))).unwrap();
                sealed.stamp_encrypted(&place, &mut sealer).unwrap()
            }
        };
        if frozen.codec == Codec::None {
            assert_eq!(built, vector.bytes, "{name}");
        } else {
            // How well a library compresses may change with its version; what comes out may not.
            let frozen = vector.open();
            let built = Vector {
                bytes: built,
                ..vector
            }
            .open();
            assert_eq!(built.header().codec, frozen.header().codec, "{name}");
            assert_eq!(built.payload(), frozen.payload(), "{name}");
        }
    }
}

#[test]
fn every_rewritten_vector_is_rewritten_again_to_the_byte() {
    let rewritten: Vec<_> = Vector::all()
        .filter(|vector| !vector.json["rewrite_of"].is_null())
        .collect();
    assert_eq!(rewritten.len(), 2);
    for vector in rewritten {
        assert_eq!(vector.json["rewrite_of"], "all-columns");
        let original = Batch::read(&Vector::load("all-columns").bytes).unwrap();
        let kept: Vec<_> = vector.json["keep"]
            .as_array()
            .unwrap()
            .iter()
            .map(|i| i.as_u64().unwrap())
            .collect();
        let built = original
            .rewrite(Codec::None, None, |i| kept.contains(&(i as u64)))
            .unwrap();
        assert_eq!(built, vector.bytes, "{}", vector.name);
        assert_eq!(
            Header::read(&built).unwrap().link(),
            original.header().link(),
            "{}",
            vector.name
        );
    }
}
