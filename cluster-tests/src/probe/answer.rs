//! An outcome as lines: what happened, which header the answer has, whether its bytes are canonical, and every field.
//!
//! Canonical means: written by our codec the answer has the same bytes, so that no tagged field is unknown, at its default or
//! out of order, no length is written in a longer form, and nothing is left over.

use bytes::Bytes;
use kafka_wire_core::{Message, Reader, Request};

use super::Lines;
use super::tree;
use super::wire::{CORRELATION_ID, Outcome};
use super::world::World;

/// Internal topics are there or not, as it comes.
const INTERNAL: &str = "[__";

/// The lines of an outcome; `read` says what the answer holds.
pub(super) fn lines(world: &World, outcome: &Outcome, read: impl Fn(&World, &Bytes) -> Lines) -> Lines {
    let mut lines = Lines::from([("outcome".to_owned(), outcome.word().to_owned())]);
    if let Outcome::Answered(frame, open) = outcome {
        let after = if *open { "open" } else { "closed" };
        lines.insert("afterwards".to_owned(), after.to_owned());
        lines.extend(read(world, frame));
    }
    lines
}

/// Reads an answer to `R` in `version`.
pub(super) fn read<R: Request>(world: &World, frame: &Bytes, version: i16) -> Lines {
    match decode::<R>(frame, version) {
        Ok((response, header)) => {
            let api = R::KEY.name();
            let rename = |value: &str| world.name(api, "name", value.to_owned()).trim_matches('"').to_owned();
            let mut lines: Lines = tree::leaves(&response, &rename)
                .into_iter()
                .filter(|leaf| !leaf.path.contains(INTERNAL))
                .map(|leaf| (leaf.path, world.name(api, &leaf.field, leaf.value)))
                .collect();
            lines.insert("header".to_owned(), header.to_owned());
            lines.insert("bytes".to_owned(), form::<R>(&response, version, frame).to_owned());
            lines
        }
        Err(error) => Lines::from([("bytes".to_owned(), format!("unreadable ({error}): {frame:02x?}"))]),
    }
}

/// Decodes an answer, whichever header it has.
pub(super) fn decode<R: Request>(frame: &Bytes, version: i16) -> Result<(R::Response, &'static str), String> {
    let flexible = R::Response::is_flexible(version) && R::KEY.code() != 18;
    let (expected, other) = if flexible { (5, 4) } else { (4, 5) };
    let body = |skipped: usize| {
        let bytes = if frame.len() < skipped { Bytes::new() } else { frame.slice(skipped..) };
        let mut reader = Reader::new(bytes);
        let response = R::Response::decode(&mut reader, version).map_err(|error| error.to_string())?;
        reader.finish().map_err(|error| error.to_string())?;
        Ok::<_, String>(response)
    };
    match body(expected) {
        Ok(response) => Ok((response, if flexible { "v1" } else { "v0" })),
        Err(error) => match body(other) {
            Ok(response) => Ok((response, if flexible { "v0 instead of v1" } else { "v1 instead of v0" })),
            Err(_) => Err(error),
        },
    }
}

fn form<R: Request>(response: &R::Response, version: i16, frame: &Bytes) -> &'static str {
    let ours = R::response_frame(response, version, CORRELATION_ID)
        .ok()
        .and_then(kafka_wire_core::Gathered::into_bytes);
    match ours {
        Some(ours) if ours[4..] == frame[..] => "canonical",
        Some(ours) if ours[8..] == frame[4..] => "another correlation id",
        Some(_) | None => "not canonical",
    }
}
