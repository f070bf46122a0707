//! Small files of lines of text, of which the last one is a checksum of those above.
//!
//! ```text
//! crc32c <of the lines above, hexadecimal>
//! ```

use std::fmt::Write as _;

const KEY: &str = "crc32c ";

/// CRC-32C, which Kafka's batches have too.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Whole lines, and their checksum below them.
pub(crate) fn with_checksum(mut lines: String) -> String {
    let crc = checksum(lines.as_bytes());
    writeln!(lines, "{KEY}{crc:08x}").expect("writing to a string cannot fail");
    lines
}

/// The lines above the checksum; `None` if they are not those that were written.
pub(crate) fn checked_lines(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (lines, crc) = text.strip_suffix('\n')?.rsplit_once(KEY)?;
    (u32::from_str_radix(crc, 16).ok()? == checksum(lines.as_bytes())).then_some(lines)
}
