//! The four codecs as Kafka frames them: gzip members, xerial-framed (or raw) snappy, LZ4 frames, zstd frames.
//! Decompression stops at the caller's cap, before memory is taken for what lies beyond it.

mod snappy;

use std::borrow::Cow;
use std::io::{self, Read, Write};

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use crate::{BatchError, Compression};

/// The largest zstd window that is accepted, as a power of two; zstd's own default for decompression, and what
/// its highest level uses.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

pub(crate) fn decompress(
    codec: Compression,
    input: &[u8],
    output_cap: usize,
) -> Result<Cow<'_, [u8]>, BatchError> {
    let result = match codec {
        Compression::None => return Ok(Cow::Borrowed(input)),
        Compression::Gzip => read_capped(MultiGzDecoder::new(input), output_cap),
        Compression::Snappy => snappy::decompress(input, output_cap),
        Compression::Lz4 => read_capped(FrameDecoder::new(input), output_cap),
        Compression::Zstd => zstd_decoder(input).and_then(|decoder| read_capped(decoder, output_cap)),
    };
    match result {
        Ok(Some(output)) => Ok(Cow::Owned(output)),
        Ok(None) => Err(BatchError::OutputTooLarge { cap: output_cap }),
        Err(error) => Err(BatchError::Decompression { codec, reason: error.to_string() }),
    }
}

pub(crate) fn compress(codec: Compression, input: &[u8], out: &mut Vec<u8>) {
    let result = match codec {
        Compression::None => out.write_all(input),
        Compression::Gzip => gzip(input, out),
        Compression::Snappy => snappy::compress(input, out),
        Compression::Lz4 => lz4(input, out),
        Compression::Zstd => zstd::stream::copy_encode(input, &mut *out, zstd::DEFAULT_COMPRESSION_LEVEL),
    };
    result.expect("compressing from memory to memory cannot fail");
}

/// All of the output, or `None` if there is more than `cap` bytes of it.
fn read_capped(reader: impl Read, cap: usize) -> io::Result<Option<Vec<u8>>> {
    let mut output = Vec::new();
    reader.take(cap as u64 + 1).read_to_end(&mut output)?;
    Ok((output.len() <= cap).then_some(output))
}

fn zstd_decoder(input: &[u8]) -> io::Result<impl Read> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(input)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    Ok(decoder)
}

fn gzip(input: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    let mut encoder = GzEncoder::new(out, flate2::Compression::default());
    encoder.write_all(input)?;
    encoder.finish().map(drop)
}

/// Independent blocks of 64 KiB: the Java client reads nothing else.
fn lz4(input: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    let info = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(info, out);
    encoder.write_all(input)?;
    encoder.finish().map(drop).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_codec_round_trips_and_respects_the_cap() {
        let inputs = [
            Vec::new(),
            b"x".to_vec(),
            vec![7; 200_000],
            (0..100_000u32).map(|i| i.wrapping_mul(i) as u8).collect(),
        ];
        for codec in Compression::ALL {
            for input in &inputs {
                let mut packed = Vec::new();
                compress(codec, input, &mut packed);
                assert_eq!(*decompress(codec, &packed, input.len()).unwrap(), **input, "{codec}");
                if codec != Compression::None && !input.is_empty() {
                    let error = decompress(codec, &packed, input.len() - 1).unwrap_err();
                    assert_eq!(error, BatchError::OutputTooLarge { cap: input.len() - 1 }, "{codec}");
                }
            }
        }
    }

    #[test]
    fn no_codec_exceeds_the_ratio_that_is_said_of_it() {
        let zeros = vec![0; 4 << 20];
        for codec in Compression::ALL {
            let mut packed = Vec::new();
            compress(codec, &zeros, &mut packed);
            assert!(
                zeros.len() as i64 <= packed.len() as i64 * codec.ratio_max(),
                "{codec}: {}",
                packed.len()
            );
        }
    }

    #[test]
    fn concatenated_gzip_members_are_one_stream() {
        let mut packed = Vec::new();
        compress(Compression::Gzip, b"one ", &mut packed);
        compress(Compression::Gzip, b"two", &mut packed);
        assert_eq!(*decompress(Compression::Gzip, &packed, 100).unwrap(), *b"one two");
    }

    #[test]
    fn garbage_is_an_error() {
        for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
            let error = decompress(codec, b"this is not compressed", 1 << 20).unwrap_err();
            assert!(
                matches!(error, BatchError::Decompression { .. } | BatchError::OutputTooLarge { .. }),
                "{codec}"
            );
        }
    }
}
