//! Snappy in the framing of the Java library xerial, which Kafka clients write: a 16-byte header, then chunks of
//! `length i32` and one raw snappy block each. Some clients write one raw block without any framing; both are read.

use std::io;

use snap::raw::{Decoder, Encoder, decompress_len};

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// Magic, then version and lowest compatible version, both 1.
const FRAME_HEADER: [u8; 16] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];
/// Uncompressed bytes per chunk, as the Java library writes by default.
const CHUNK_BYTES: usize = 32 * 1024;
/// No snappy block grows by more: its densest element makes 64 bytes of output out of 3.
const EXPANSION_MAX: usize = 22;

pub(super) fn decompress(input: &[u8], output_cap: usize) -> io::Result<Option<Vec<u8>>> {
    let mut output = Vec::new();
    if !input.starts_with(&MAGIC) {
        let fits = append_block(input, output_cap, &mut output)?;
        return Ok(fits.then_some(output));
    }
    let mut rest = input;
    while !rest.is_empty() {
        // A header may stand again between chunks: concatenated streams.
        if rest.starts_with(&MAGIC) {
            rest = rest.get(FRAME_HEADER.len()..).ok_or_else(|| damaged("stream header is cut off"))?;
            continue;
        }
        let (length, after) =
            rest.split_first_chunk::<4>().ok_or_else(|| damaged("chunk length is cut off"))?;
        let length =
            usize::try_from(i32::from_be_bytes(*length)).map_err(|_| damaged("chunk length is negative"))?;
        let (chunk, after) = after.split_at_checked(length).ok_or_else(|| damaged("chunk is cut off"))?;
        if !append_block(chunk, output_cap, &mut output)? {
            return Ok(None);
        }
        rest = after;
    }
    Ok(Some(output))
}

/// Decompresses one raw block to the end of `output`. False if that would exceed the cap.
fn append_block(block: &[u8], output_cap: usize, output: &mut Vec<u8>) -> io::Result<bool> {
    let length = decompress_len(block).map_err(io::Error::other)?;
    if length > block.len().saturating_mul(EXPANSION_MAX) {
        return Err(damaged("block announces more output than snappy can make of it"));
    }
    let start = output.len();
    if length > output_cap.saturating_sub(start) {
        return Ok(false);
    }
    output.resize(start + length, 0);
    let written = Decoder::new().decompress(block, &mut output[start..]).map_err(io::Error::other)?;
    if written != length {
        return Err(damaged("block is shorter than it announces"));
    }
    Ok(true)
}

pub(super) fn compress(input: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(&FRAME_HEADER);
    let mut encoder = Encoder::new();
    for chunk in input.chunks(CHUNK_BYTES) {
        let block = encoder.compress_vec(chunk).map_err(io::Error::other)?;
        let length = i32::try_from(block.len()).map_err(io::Error::other)?;
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&block);
    }
    Ok(())
}

fn damaged(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_blocks_and_concatenated_streams_are_read() {
        let raw = Encoder::new().compress_vec(b"raw block").unwrap();
        assert_eq!(decompress(&raw, 100).unwrap().unwrap(), b"raw block");
        let mut framed = Vec::new();
        compress(b"one ", &mut framed).unwrap();
        compress(b"two", &mut framed).unwrap();
        assert_eq!(decompress(&framed, 100).unwrap().unwrap(), b"one two");
    }

    #[test]
    fn a_bomb_takes_no_memory() {
        // Announces 4 GiB − 1 in a block of a few bytes.
        let bomb = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0];
        assert!(decompress(&bomb, usize::MAX).is_err());
    }
}
