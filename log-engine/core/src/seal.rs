//! The bytes of a seal (`<base>.seal`): what a segment that takes no more appends holds, so that a start need not read
//! it, and so that damage to it is found and located later.
//!
//! It is written when everything that it describes is on disk. The segment is hashed in pieces, each by a CRC-32C of its
//! own, the last one shorter; they cover what a batch's checksum leaves out too (offsets, leader epochs).
//!
//! ```text
//! "WEIRSEAL" | version u16 = 1 | zero u16 | bytes of a piece u32
//! base offset i64 | last offset i64 | base offset of the next segment i64 | length u64 | batches u64 | records u64
//! max timestamp i64 | last offset of its batch i64 | offset of the producer snapshot that follows i64, or -1
//! offset index, time index, transaction index: 3 × { length u64, or 2^64 - 1 without a file | crc u32 }
//! n u32 | n × { crc of a piece u32 } | crc of all that stands before u32                      (everything big-endian)
//! ```

use crc_fast::CrcAlgorithm;

/// Bytes that one checksum of the segment covers.
pub const PIECE_BYTES: u64 = 1 << 20;

const MAGIC: &[u8; 8] = b"WEIRSEAL";
const VERSION: u16 = 1;
const FIXED_BYTES: usize = 16 + 9 * 8 + 3 * 12 + 4;
const NO_FILE: u64 = u64::MAX;

/// What a segment holds that takes no more appends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    pub base_offset: i64,
    /// Last offset of the last batch.
    pub last_offset: i64,
    /// Base offset of the segment that follows: another one there says that a segment is missing.
    pub next_base: i64,
    /// Bytes of the segment file.
    pub length: u64,
    pub batches: u64,
    pub records: u64,
    /// Milliseconds; −1 if no batch has a timestamp.
    pub max_timestamp: i64,
    /// Last offset of the first batch that has it.
    pub max_timestamp_offset: i64,
    /// Offset of the producer snapshot that was taken when the segment ended.
    pub producers_at: Option<i64>,
    pub index: Option<FileSum>,
    pub time_index: Option<FileSum>,
    pub txn_index: Option<FileSum>,
    /// CRC-32C of each [`PIECE_BYTES`] of the segment.
    pub pieces: Vec<u32>,
}

/// Length and checksum of a small file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSum {
    pub length: u64,
    pub crc: u32,
}

/// Why the bytes of a seal are refused; the segment is then one without a seal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("seal is damaged: {0}")]
pub struct SealError(pub &'static str);

impl FileSum {
    pub fn of(bytes: &[u8]) -> FileSum {
        FileSum { length: bytes.len() as u64, crc: crc32c(bytes) }
    }
}

/// The checksum that seals use.
pub fn crc32c(bytes: &[u8]) -> u32 {
    // The algorithm yields 32 bits in a u64.
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

impl Seal {
    /// Whether a piece of the segment, counted from 0, is what was sealed.
    pub fn holds(&self, piece: u64, bytes: &[u8]) -> bool {
        let sealed = usize::try_from(piece).ok().and_then(|at| self.pieces.get(at));
        sealed.is_some_and(|&sealed| sealed == crc32c(bytes))
    }

    /// Bytes of the largest seal that can be: of a segment of 2 GiB.
    pub const BYTES_MAX: u64 = FIXED_BYTES as u64 + 4 * ((1 << 31) / PIECE_BYTES + 1) + 4;

    /// Writes the seal.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FIXED_BYTES + 4 * self.pieces.len() + 4);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&(PIECE_BYTES as u32).to_be_bytes());
        for number in [self.base_offset, self.last_offset, self.next_base] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        for number in [self.length, self.batches, self.records] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        let producers_at = self.producers_at.unwrap_or(-1);
        for number in [self.max_timestamp, self.max_timestamp_offset, producers_at] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        for file in [self.index, self.time_index, self.txn_index] {
            let file = file.unwrap_or(FileSum { length: NO_FILE, crc: 0 });
            out.extend_from_slice(&file.length.to_be_bytes());
            out.extend_from_slice(&file.crc.to_be_bytes());
        }
        out.extend_from_slice(&(self.pieces.len() as u32).to_be_bytes());
        for piece in &self.pieces {
            out.extend_from_slice(&piece.to_be_bytes());
        }
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_be_bytes());
        out
    }

    /// Reads a seal that must be that of the segment at `base_offset`.
    pub fn decode(bytes: &[u8], base_offset: i64) -> Result<Seal, SealError> {
        if bytes.len() < FIXED_BYTES + 4 {
            return Err(SealError("it is too short"));
        }
        let (body, crc) = bytes.split_at(bytes.len() - 4);
        if crc32c(body).to_be_bytes() != crc {
            return Err(SealError("its checksum does not fit"));
        }
        if &body[..8] != MAGIC {
            return Err(SealError("it does not begin as one"));
        }
        if u16_at(body, 8) != VERSION || u64::from(u32_at(body, 12)) != PIECE_BYTES {
            return Err(SealError("it is of an unknown version"));
        }
        let number = |nth: usize| u64_at(body, 16 + 8 * nth);
        let file = |nth: usize| {
            let at = 88 + 12 * nth;
            let sum = FileSum { length: u64_at(body, at), crc: u32_at(body, at + 8) };
            (sum.length != NO_FILE).then_some(sum)
        };
        let pieces: Vec<u32> = body[FIXED_BYTES..].chunks_exact(4).map(|piece| u32_at(piece, 0)).collect();
        let seal = Seal {
            base_offset: number(0) as i64,
            last_offset: number(1) as i64,
            next_base: number(2) as i64,
            length: number(3),
            batches: number(4),
            records: number(5),
            max_timestamp: number(6) as i64,
            max_timestamp_offset: number(7) as i64,
            producers_at: Some(number(8) as i64).filter(|&at| at >= 0),
            index: file(0),
            time_index: file(1),
            txn_index: file(2),
            pieces,
        };
        if seal.base_offset != base_offset {
            return Err(SealError("it belongs to another segment"));
        }
        let announced = u32_at(body, FIXED_BYTES - 4) as usize;
        let fits = seal.length.div_ceil(PIECE_BYTES) == seal.pieces.len() as u64;
        if announced != seal.pieces.len() || !(body.len() - FIXED_BYTES).is_multiple_of(4) || !fits {
            return Err(SealError("its length does not fit"));
        }
        let empty = seal.length == 0;
        if (!empty && seal.last_offset < seal.base_offset) || seal.next_base <= seal.last_offset {
            return Err(SealError("its offsets are out of order"));
        }
        Ok(seal)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|i| bytes[at + i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Seal {
        Seal {
            base_offset: 0x0102,
            last_offset: 0x0304,
            next_base: 0x0305,
            length: PIECE_BYTES + 5,
            batches: 6,
            records: 7,
            max_timestamp: 0x0809,
            max_timestamp_offset: 0x0203,
            producers_at: Some(0x0305),
            index: Some(FileSum { length: 8, crc: 0x0a0b_0c0d }),
            time_index: Some(FileSum { length: 12, crc: 0x0e0f_1011 }),
            txn_index: None,
            pieces: vec![0x1213_1415, 0x1617_1819],
        }
    }

    #[test]
    fn golden_bytes() {
        let hex: String = example().encode().iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = [
            "574549525345414c",                                 // "WEIRSEAL"
            "0001000000100000",                                 // version, size of a piece
            "000000000000010200000000000003040000000000000305", // base, last offset, next base
            "000000000010000500000000000000060000000000000007", // length, batches, records
            "00000000000008090000000000000203",                 // max timestamp and where
            "0000000000000305",                                 // producers
            "00000000000000080a0b0c0d",                         // offset index
            "000000000000000c0e0f1011",                         // time index
            "ffffffffffffffff00000000",                         // no transaction index
            "000000021213141516171819",                         // pieces
        ]
        .concat();
        let (body, crc) = hex.split_at(hex.len() - 8);
        assert_eq!(body, expected);
        assert_eq!(crc, "cf14afb0");
    }

    #[test]
    fn a_seal_is_read_back() {
        let whole = example();
        assert_eq!(Seal::decode(&whole.encode(), 0x0102), Ok(whole.clone()));
        let empty = Seal {
            length: 0,
            producers_at: None,
            index: None,
            txn_index: Some(FileSum::of(b"x")),
            pieces: vec![],
            ..whole
        };
        assert_eq!(Seal::decode(&empty.encode(), 0x0102), Ok(empty));
    }

    #[test]
    fn what_is_not_a_seal_of_this_segment_is_refused() {
        let bytes = example().encode();
        assert_eq!(Seal::decode(&bytes, 1), Err(SealError("it belongs to another segment")));
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert!(Seal::decode(&damaged, 0x0102).is_err(), "byte {at}, bit {bit}");
            }
            assert!(Seal::decode(&bytes[..at], 0x0102).is_err(), "cut to {at}");
        }
        // Whole, but says of itself what cannot be.
        for wrong in [
            Seal { length: 5, ..example() },
            Seal { last_offset: 3, ..example() },
            Seal { next_base: 0x0304, ..example() },
            Seal { pieces: vec![], ..example() },
        ] {
            assert!(Seal::decode(&wrong.encode(), 0x0102).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_largest_seal_has_its_size() {
        let pieces = vec![0; (1 << 31) / PIECE_BYTES as usize + 1];
        let largest = Seal { length: (1 << 31) + 1, pieces, ..example() };
        assert_eq!(largest.encode().len() as u64, Seal::BYTES_MAX);
    }
}
