//! What Wireshark complains of, by kind, and where the verdicts on the kinds are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kafka_wire_core::ApiKey;

use super::{WitnessError, tshark};
use crate::probe::verdicts::Verdicts;

/// How often Wireshark complains of what in a capture of `port`. A kind is like
/// `request JoinGroup 5: Dissected message does not end at the pdu length offset`; an answer has no version, and batches with a
/// codec have its number.
pub(super) fn counted(file: &Path, port: u16) -> Result<BTreeMap<String, usize>, WitnessError> {
    let decode_as = format!("tcp.port=={port},kafka");
    let fields = ["kafka.api_key", "kafka.api_version", "kafka.batch_codec", "_ws.expert.message"];
    let fields: Vec<&str> = fields.iter().flat_map(|field| ["-e", field]).collect();
    let filter = "kafka && (_ws.malformed || _ws.expert.severity >= 0x600000)";
    // Without most of what it says of TCP: a full window is not a matter of the protocol.
    let how = ["-o", "tcp.analyze_sequence_numbers:FALSE", "-d", &decode_as, "-Y", filter, "-T", "fields"];
    let text = tshark(file, &[&how[..], &fields[..]].concat())?;
    let mut counted = BTreeMap::new();
    for kind in text.lines().flat_map(kinds) {
        *counted.entry(kind).or_default() += 1;
    }
    Ok(counted)
}

/// The kinds of one frame's complaints, from its key, version, codecs and messages with tabs between.
fn kinds(line: &str) -> BTreeSet<String> {
    let mut fields = line.split('\t');
    let mut field = || fields.next().unwrap_or_default();
    let (key, version, codecs, messages) = (field(), field(), field(), field());
    let key: Option<ApiKey> = first(key).parse().ok().and_then(|key: i16| ApiKey::try_from(key).ok());
    let name = key.map_or("of an unread request", ApiKey::name);
    let mut who = if version.is_empty() {
        format!("answer {name}")
    } else {
        format!("request {name} {}", first(version))
    };
    if let Some(codec) = codecs.split(',').find(|codec| !["", "0"].contains(codec)) {
        who.push_str(&format!(", codec {codec}"));
    }
    let messages: BTreeSet<&str> = messages.split(',').collect();
    // What comes after a body of a version that it does not know says nothing more. The answer to ApiVersions is another
    // matter: there it says so of the versions that are in it.
    let unknown = |message: &&&str| message.starts_with("Unsupported ");
    let is_table = version.is_empty() && key == Some(ApiKey::ApiVersions);
    let told = match messages.iter().find(unknown) {
        Some(unknown) if !is_table => BTreeSet::from([*unknown]),
        Some(_) | None => messages,
    };
    told.into_iter().map(|message| format!("{who}: {message}")).collect()
}

fn first(values: &str) -> &str {
    values.split(',').next().unwrap_or_default()
}

/// The verdicts on kinds of complaints: a table of `probe/README.md`.
pub fn verdicts() -> Result<Verdicts, String> {
    Verdicts::in_section("cluster-tests/probe/README.md", "## What Wireshark complains of")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(line: &str) -> Vec<String> {
        kinds(line).into_iter().collect()
    }

    #[test]
    fn a_frame_has_the_kinds_of_its_complaints() {
        assert_eq!(all("11\t5\t\tIt does not end,It does not end"), ["request JoinGroup 5: It does not end"]);
        assert_eq!(
            all("1,1\t\t0,4,4\tStray,Invalid"),
            ["answer Fetch, codec 4: Invalid", "answer Fetch, codec 4: Stray"]
        );
        assert_eq!(
            all("3\t13\t\tMalformed,Unsupported Metadata version"),
            ["request Metadata 13: Unsupported Metadata version"]
        );
        assert_eq!(
            all("18\t\t\tUnsupported Fetch version,Unknown 55 API key,Malformed"),
            [
                "answer ApiVersions: Malformed",
                "answer ApiVersions: Unknown 55 API key",
                "answer ApiVersions: Unsupported Fetch version"
            ]
        );
        assert_eq!(all("\t\t\tRequest missing"), ["answer of an unread request: Request missing"]);
    }

    #[test]
    fn a_kind_is_covered_by_a_row_or_not() {
        let verdicts = verdicts().unwrap();
        assert!(
            verdicts.covers("request InitProducerId 4: Unsupported InitProducerId version. Supports v0-3.")
        );
        assert!(!verdicts.covers("answer Metadata: Malformed Packet (Exception occurred)"));
    }
}
