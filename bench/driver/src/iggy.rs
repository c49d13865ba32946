//! Iggy's binary protocol as its clients of servers 0.4 speak it: one connection, one request at a time.
use crate::arguments::Arguments;
use crate::report::{Clock, Failure, with_latencies};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const LOGIN_USER: u32 = 38;
const POLL_MESSAGES: u32 = 100;
const SEND_MESSAGES: u32 = 101;
const CREATE_STREAM: u32 = 202;
const CREATE_TOPIC: u32 = 302;

/// Bytes of a message of a poll before its headers: offset, state, timestamp, id, checksum, and the length of the headers.
const MESSAGE_HEAD: usize = 8 + 1 + 8 + 16 + 4 + 4;

/// A connection that has logged in.
struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Connection {
    /// Connects to `address`, and logs in as the first user with `password`.
    async fn open(arguments: &Arguments) -> Result<Self, Failure> {
        let stream = TcpStream::connect(arguments.text("address", "127.0.0.1:8090")).await?;
        stream.set_nodelay(true)?;
        let mut connection = Self {
            stream,
            answer: Vec::new(),
        };
        let mut login = Vec::new();
        put_short(&mut login, b"iggy");
        put_short(&mut login, arguments.text("password", "iggy").as_bytes());
        login.extend_from_slice(&[0; 8]); // neither a version nor a context
        connection.ask(&request(LOGIN_USER, &login)).await?;
        Ok(connection)
    }

    /// Sends a request; the payload of its answer.
    async fn ask(&mut self, request: &[u8]) -> Result<&[u8], Failure> {
        self.stream.write_all(request).await?;
        let status = self.stream.read_u32_le().await?;
        let length = self.stream.read_u32_le().await? as usize;
        if status != 0 {
            return Err(Failure::new(format!("status {status}")));
        }
        self.answer.resize(length, 0);
        self.stream.read_exact(&mut self.answer).await?;
        Ok(&self.answer)
    }
}

/// A stream of the name `stream` with the topic `t`, which has one partition.
pub async fn create(arguments: &Arguments) -> Result<serde_json::Value, Failure> {
    let mut connection = Connection::open(arguments).await?;
    let name = arguments.text("stream", "bench").as_bytes();
    let mut stream = vec![0; 4]; // the broker chooses the number
    put_short(&mut stream, name);
    connection.ask(&request(CREATE_STREAM, &stream)).await?;
    let mut topic = Vec::new();
    put_name(&mut topic, name);
    topic.extend_from_slice(&0_u32.to_le_bytes());
    topic.extend_from_slice(&1_u32.to_le_bytes());
    topic.push(1); // no compression
    topic.extend_from_slice(&[0; 8 + 8 + 1]); // expiry, size and factor of the broker
    put_short(&mut topic, b"t");
    connection.ask(&request(CREATE_TOPIC, &topic)).await?;
    Ok(Clock::start().report(1))
}

/// Sends batches of `batch` messages for `seconds`, each when the former is answered.
pub async fn send(arguments: &Arguments) -> Result<serde_json::Value, Failure> {
    let mut connection = Connection::open(arguments).await?;
    let (value, batch) = (arguments.value(), arguments.number("batch", 1000));
    let mut payload = Vec::new();
    put_place(&mut payload, arguments);
    payload.extend_from_slice(&[2, 4, 1, 0, 0, 0]); // to partition 1
    for _ in 0..batch {
        payload.extend_from_slice(&[0; 16 + 4]); // no id, no headers
        payload.extend_from_slice(&(value.len() as u32).to_le_bytes());
        payload.extend_from_slice(&value);
    }
    let request = request(SEND_MESSAGES, &payload);
    let (clock, end) = (Clock::start(), Instant::now() + arguments.duration());
    let mut micros = Vec::new();
    while Instant::now() < end {
        let start = Instant::now();
        connection.ask(&request).await?;
        micros.push(start.elapsed().as_micros() as u32);
    }
    let count = micros.len() as u64 * batch;
    Ok(with_latencies(clock.report(count), micros))
}

/// Polls the offsets 0 to `count` − 1, `batch` at a time; each must be the next.
pub async fn poll(arguments: &Arguments) -> Result<serde_json::Value, Failure> {
    let mut connection = Connection::open(arguments).await?;
    let (count, batch) = (
        arguments.number("count", 1_000_000),
        arguments.number("batch", 1000),
    );
    let (clock, mut next, mut micros) = (Clock::start(), 0, Vec::new());
    while next < count {
        let mut payload = vec![1]; // a consumer of its own
        put_number(&mut payload, 1);
        put_place(&mut payload, arguments);
        payload.extend_from_slice(&1_u32.to_le_bytes());
        payload.push(1); // from an offset
        payload.extend_from_slice(&next.to_le_bytes());
        payload.extend_from_slice(&(batch.min(count - next) as u32).to_le_bytes());
        payload.push(0); // stores no position
        let start = Instant::now();
        let answer = connection.ask(&request(POLL_MESSAGES, &payload)).await?;
        micros.push(start.elapsed().as_micros() as u32);
        let before = next;
        next = decode(answer, next)?;
        if next == before {
            return Err(Failure::new(format!(
                "{next} of {count} messages are there"
            )));
        }
    }
    Ok(with_latencies(clock.report(count), micros))
}

/// Reads each message of an answer, as a client does; the offset after the last one.
fn decode(answer: &[u8], mut next: u64) -> Result<u64, Failure> {
    let cut = || Failure::new("the answer ends within a message");
    let mut rest = answer.get(16..).ok_or_else(cut)?;
    while !rest.is_empty() {
        let (head, behind) = rest.split_at_checked(MESSAGE_HEAD).ok_or_else(cut)?;
        let headers = number(head, MESSAGE_HEAD - 4).ok_or_else(cut)? as usize;
        let size = number(behind, headers).ok_or_else(cut)? as usize;
        let value = behind.get(headers + 4..).ok_or_else(cut)?;
        let (value, behind) = value.split_at_checked(size).ok_or_else(cut)?;
        let offset = head.first_chunk().copied().map(u64::from_le_bytes);
        if offset != Some(next) || value.is_empty() {
            return Err(Failure::new(format!(
                "offset {offset:?} came where {next} was due"
            )));
        }
        (rest, next) = (behind, next + 1);
    }
    Ok(next)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*four))
}

fn request(command: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32 + 4;
    [&length.to_le_bytes()[..], &command.to_le_bytes(), payload].concat()
}

fn put_short(to: &mut Vec<u8>, text: &[u8]) {
    to.push(text.len() as u8);
    to.extend_from_slice(text);
}

fn put_name(to: &mut Vec<u8>, name: &[u8]) {
    to.push(2);
    put_short(to, name);
}

fn put_number(to: &mut Vec<u8>, number: u32) {
    to.extend_from_slice(&[1, 4]);
    to.extend_from_slice(&number.to_le_bytes());
}

fn put_place(to: &mut Vec<u8>, arguments: &Arguments) {
    put_name(to, arguments.text("stream", "bench").as_bytes());
    put_name(to, b"t");
}
