//! The wire witness: what stock clients and Weir said to each other, taken from the wire and read by two strangers: Kafka's own
//! codec, which must write each body again byte by byte, and Wireshark's dissector.
//!
//! Wireshark knows the protocol up to some version only and is wrong in places, also about requests that clients wrote. So each
//! kind of complaint has a verdict in `probe/README.md`, and one of another kind is a failure. [`capture`] records,
//! [`frames`] puts the streams together, [`examine`] asks both, [`complaints`] is what Wireshark says.

pub mod complaints;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kafka_wire_core::ApiKey;

use crate::clock::wait_until;
use crate::oracle::tools::{self, SHORT_LIVED_JVM};
use crate::process::Process;
use crate::workspace;

const READY_LIMIT: Duration = Duration::from_secs(20);
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// Why there is no testimony.
#[derive(Debug, thiserror::Error)]
pub enum WitnessError {
    /// A program could not be run.
    #[error(
        "cannot run {program}: {why}. `dumpcap` and `tshark` are in the Debian package tshark; capturing needs root"
    )]
    Program {
        /// What was started.
        program: &'static str,
        /// What went wrong.
        why: String,
    },
    /// The capture is not what it should be.
    #[error("the capture cannot be read: {0}")]
    Capture(String),
}

/// A capture that runs.
#[derive(Debug)]
pub struct Capture {
    process: Process,
    file: PathBuf,
}

/// Begins to capture the loopback traffic of `port` into `file`.
pub fn capture(port: u16, file: &Path) -> Result<Capture, WitnessError> {
    let failed = |why: String| WitnessError::Program { program: "dumpcap", why };
    let mut command = Command::new("dumpcap");
    command.args(["-q", "-i", "lo", "-B", "64", "-f", &format!("tcp port {port}"), "-w"]).arg(file);
    let mut process = Process::start("dumpcap", command, &file.with_extension("log"))
        .map_err(|error| failed(error.to_string()))?;
    // The file gets its head when capturing begins.
    let begun = wait_until(READY_LIMIT, || {
        let written = fs::metadata(file).is_ok_and(|metadata| metadata.len() > 0);
        (written || matches!(process.ended(), Ok(Some(_)))).then_some(written)
    });
    match begun {
        Some(true) => Ok(Capture { process, file: file.to_owned() }),
        Some(false) | None => Err(failed(process.output())),
    }
}

impl Capture {
    /// Ends the capture.
    pub fn stop(mut self) -> Result<PathBuf, WitnessError> {
        let ended = self.process.terminate(STOP_LIMIT);
        ended.map_err(|error| WitnessError::Program { program: "dumpcap", why: error.to_string() })?;
        Ok(self.file)
    }
}

/// A request or a response, without its length and header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// API key.
    pub key: i16,
    /// Version.
    pub version: i16,
    /// Whether the server said it.
    pub response: bool,
    /// What follows the header.
    pub body: Vec<u8>,
}

/// Runs tshark over the capture.
fn tshark(file: &Path, args: &[&str]) -> Result<String, WitnessError> {
    let failed = |why: String| WitnessError::Program { program: "tshark", why };
    let output = Command::new("tshark").arg("-r").arg(file).args(args).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// All requests and responses of a capture of `port`, in the order of the wire.
pub fn frames(file: &Path, port: u16) -> Result<Vec<Frame>, WitnessError> {
    let fields = ["-e", "tcp.stream", "-e", "tcp.srcport", "-e", "tcp.payload"];
    let filter = "tcp.len > 0 && !tcp.analysis.retransmission";
    let text = tshark(file, &[&["-Y", filter, "-T", "fields"], &fields[..]].concat())?;
    assemble(&text, port).map_err(WitnessError::Capture)
}

/// Lines of stream, source port and payload in hexadecimal.
fn assemble(text: &str, port: u16) -> Result<Vec<Frame>, String> {
    let mut streams: HashMap<(&str, bool), Vec<u8>> = HashMap::new();
    let mut asked: HashMap<(&str, [u8; 4]), (i16, i16)> = HashMap::new();
    let mut frames = Vec::new();
    for line in text.lines() {
        let mut fields = line.split('\t');
        let (Some(stream), Some(source), Some(payload)) = (fields.next(), fields.next(), fields.next())
        else {
            return Err(format!("not a segment: {line}"));
        };
        let response = source == port.to_string();
        let bytes = streams.entry((stream, response)).or_default();
        bytes.extend(from_hex(payload)?);
        while let Some(frame) = take_frame(bytes) {
            frames.push(match response {
                true => response_of(stream, &frame, &mut asked)?,
                false => request_of(stream, &frame, &mut asked)?,
            });
        }
    }
    Ok(frames)
}

fn take_frame(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = u32::from_be_bytes(*bytes.first_chunk()?);
    let end = 4 + usize::try_from(length).ok()?;
    if bytes.len() < end {
        return None;
    }
    let rest = bytes.split_off(end);
    let frame = std::mem::replace(bytes, rest);
    Some(frame[4..].to_vec())
}

fn request_of<'a>(
    stream: &'a str,
    frame: &[u8],
    asked: &mut HashMap<(&'a str, [u8; 4]), (i16, i16)>,
) -> Result<Frame, String> {
    let short = || format!("a request of {} bytes", frame.len());
    let [k0, k1, v0, v1, c0, c1, c2, c3, n0, n1] = *frame.first_chunk().ok_or_else(short)?;
    let (key, version) = (i16::from_be_bytes([k0, k1]), i16::from_be_bytes([v0, v1]));
    let client_id = usize::try_from(i16::from_be_bytes([n0, n1])).unwrap_or(0);
    let tags = usize::from(is_flexible(key, version));
    asked.insert((stream, [c0, c1, c2, c3]), (key, version));
    let body = frame.get(10 + client_id + tags..).ok_or_else(short)?.to_vec();
    Ok(Frame { key, version, response: false, body })
}

fn response_of<'a>(
    stream: &'a str,
    frame: &[u8],
    asked: &mut HashMap<(&'a str, [u8; 4]), (i16, i16)>,
) -> Result<Frame, String> {
    let id = *frame.first_chunk().ok_or_else(|| format!("a response of {} bytes", frame.len()))?;
    let (key, version) = asked.remove(&(stream, id)).ok_or_else(|| format!("nobody asked {id:?}"))?;
    let tags = usize::from(is_flexible(key, version) && key != ApiKey::ApiVersions.code());
    let body = frame.get(4 + tags..).ok_or("a response without its header")?.to_vec();
    Ok(Frame { key, version, response: true, body })
}

fn is_flexible(key: i16, version: i16) -> bool {
    ApiKey::try_from(key).is_ok_and(|key| key.is_flexible(version))
}

fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let digit = |byte: u8| char::from(byte).to_digit(16).ok_or_else(|| format!("not hexadecimal: {text}"));
    text.as_bytes()
        .chunks(2)
        .map(|pair| {
            let value =
                pair.iter().try_fold(0, |value, byte| Ok::<u32, String>(value * 16 + digit(*byte)?))?;
            u8::try_from(value).map_err(|error| error.to_string())
        })
        .collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What was seen of an API in a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Requests.
    pub requests: usize,
    /// Responses.
    pub responses: usize,
}

/// What both readers say.
#[derive(Clone, Debug, Default)]
pub struct Testimony {
    /// By API key and version.
    pub seen: BTreeMap<(i16, i16), Seen>,
    /// What Kafka's codec does not read, or writes otherwise: nothing, if all is well.
    pub faults: Vec<String>,
    /// How often Wireshark complains of what, by kind.
    pub complaints: BTreeMap<String, usize>,
}

/// Asks Kafka's codec and Wireshark about a capture of `port`.
pub fn examine(file: &Path, port: u16) -> Result<Testimony, WitnessError> {
    let frames = frames(file, port)?;
    let mut testimony = Testimony { complaints: complaints::counted(file, port)?, ..Testimony::default() };
    for frame in &frames {
        let seen = testimony.seen.entry((frame.key, frame.version)).or_default();
        *if frame.response { &mut seen.responses } else { &mut seen.requests } += 1;
    }
    testimony.faults = reencode(&frames)?;
    Ok(testimony)
}

/// Lets Kafka's codec read and write every body; says what does not come back as it was.
fn reencode(frames: &[Frame]) -> Result<Vec<String>, WitnessError> {
    let failed = |why: String| WitnessError::Program { program: "java", why };
    let mut java = tools::java(SHORT_LIVED_JVM).map_err(|error| failed(error.to_string()))?;
    java.arg(workspace::root().join("kafka-wire/core/tests/java/ReEncode.java"));
    let way = |frame: &Frame| if frame.response { "resp" } else { "req" };
    let bodies: Vec<String> = frames.iter().map(|frame| to_hex(&frame.body)).collect();
    let lines = frames.iter().zip(&bodies);
    let input: String =
        lines.map(|(frame, hex)| format!("{} {} {} {hex}\n", frame.key, frame.version, way(frame))).collect();
    let output = tools::run_with_input(java, input.as_bytes()).map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let answers: Vec<&str> = text.lines().collect();
    if answers.len() != frames.len() {
        return Err(failed(format!("{} answers to {} bodies", answers.len(), frames.len())));
    }
    let wrong = frames.iter().zip(&bodies).zip(answers).filter(|((_, hex), answer)| answer != hex);
    Ok(wrong
        .map(|((frame, hex), answer)| {
            format!("{} version {} {}: {hex} became {answer}", frame.key, frame.version, way(frame))
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_become_requests_and_responses() {
        // ApiVersions 0 with client id "c" in two segments; its answer with the next request's in between.
        let text = "0\t5000\t0000000b0012\n\
            0\t5000\t000000000001000163\n\
            1\t5001\t0000000c0012000300000007ffff0001\n\
            0\t9092\t0000000600000001abcd\n\
            1\t9092\t0000000600000007eeff\n";
        let frames = assemble(text, 9092).unwrap();
        let frame =
            |version, response, body: &[u8]| Frame { key: 18, version, response, body: body.to_vec() };
        let expected = [
            frame(0, false, &[]),
            frame(3, false, &[1]),
            frame(0, true, &[0xab, 0xcd]),
            frame(3, true, &[0xee, 0xff]),
        ];
        assert_eq!(frames, expected);
        assert!(assemble("0\t9092\t0000000600000001abcd\n", 9092).is_err(), "nobody asked");
    }
}
