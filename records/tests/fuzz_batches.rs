//! Hostile bytes, from a seed: whatever arrives, reading ends with an answer, within the output cap, without panic.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed unwrap is a failed test; the seed is printed"
)]

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use records::{BatchBuilder, BatchError, BatchHeader, Compression, batches, check_crc, set_log_append_time};

const OUTPUT_CAP: usize = 1 << 20;

fn seed() -> u64 {
    let seed = std::env::var("WEIR_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_129);
    println!("repeat with: WEIR_SEED={seed} cargo test -p records --test fuzz_batches");
    seed
}

fn valid_batch(rng: &mut StdRng) -> Vec<u8> {
    let codec = Compression::ALL[rng.random_range(0..5)];
    let mut builder = BatchBuilder::new().compression(codec);
    for _ in 0..rng.random_range(0..12) {
        let value = vec![rng.random::<u8>(); rng.random_range(0..200)];
        builder
            .push(rng.random_range(0..1 << 40), Some(b"key"), Some(&value), &[(b"h", Some(b"x"))])
            .unwrap();
    }
    builder.build()
}

/// One of: flip bits, overwrite a length-like field, cut, duplicate a stretch, or pure noise.
fn mutate(rng: &mut StdRng, bytes: &mut Vec<u8>) {
    match rng.random_range(0..5) {
        0 => {
            for _ in 0..rng.random_range(1..8) {
                let at = rng.random_range(0..bytes.len());
                bytes[at] ^= 1 << rng.random_range(0..8);
            }
        }
        1 => {
            let at = [8, 23, 27, 35, 57][rng.random_range(0..5)];
            let extreme: i32 = [i32::MAX, i32::MIN, -1, 0, 1 << 30, 100_000_000][rng.random_range(0..6)];
            if let Some(field) = bytes.get_mut(at..at + 4) {
                field.copy_from_slice(&extreme.to_be_bytes());
            }
        }
        2 => bytes.truncate(rng.random_range(1..=bytes.len())),
        3 => {
            let from = rng.random_range(0..bytes.len());
            let tail = bytes[from..].to_vec();
            bytes.extend(tail);
        }
        _ => {
            let from = BatchHeader::LEN.min(bytes.len() - 1);
            bytes[from..].iter_mut().for_each(|byte| *byte = rng.random());
        }
    }
}

/// Reads everything that can be read; gives how many records came out.
fn read_all(bytes: &[u8]) -> Result<usize, BatchError> {
    let mut count = 0;
    for view in batches(bytes) {
        let view = view?;
        let _ = view.check_crc();
        let records = view.records(OUTPUT_CAP)?;
        assert!(records.size() <= OUTPUT_CAP.max(view.body().len()));
        for record in records.iter() {
            let record = record?;
            count += 1;
            assert_eq!(record.headers.iter().count(), record.headers.len());
        }
    }
    Ok(count)
}

#[test]
fn mutated_batches_never_panic() {
    let mut rng = StdRng::seed_from_u64(seed());
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..30_000 {
        let mut bytes = valid_batch(&mut rng);
        for _ in 0..rng.random_range(1..3) {
            mutate(&mut rng, &mut bytes);
        }
        match read_all(&bytes) {
            Ok(_) => accepted += 1,
            Err(_) => refused += 1,
        }
    }
    println!("{accepted} read, {refused} refused");
    assert!(accepted > 100 && refused > 10_000, "the mutations reach both sides");
}

#[test]
fn random_bytes_never_panic() {
    let mut rng = StdRng::seed_from_u64(seed());
    for _ in 0..100_000 {
        let mut bytes: Vec<u8> = (0..rng.random_range(0..200)).map(|_| rng.random()).collect();
        if bytes.len() > 17 {
            bytes[16] = 2;
            if rng.random_bool(0.8) {
                let length = bytes.len().saturating_sub(12) as i32;
                bytes[8..12].copy_from_slice(&length.to_be_bytes());
            }
        }
        let _ = read_all(&bytes);
        let _ = check_crc(&bytes);
    }
}

#[test]
fn every_flipped_bit_behind_the_checksum_is_found() {
    let mut rng = StdRng::seed_from_u64(seed());
    for _ in 0..50 {
        let batch = valid_batch(&mut rng);
        check_crc(&batch).unwrap();
        for _ in 0..100 {
            let mut damaged = batch.clone();
            let at = rng.random_range(17..damaged.len());
            damaged[at] ^= 1 << rng.random_range(0..8);
            assert!(matches!(check_crc(&damaged), Err(BatchError::CrcMismatch { .. })), "byte {at}");
        }
    }
}

#[test]
fn bombs_stop_at_the_cap() {
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let mut builder = BatchBuilder::new().compression(codec);
        builder.push(0, None, Some(&vec![0; 20 << 20]), &[]).unwrap();
        let bomb = builder.build();
        let view = batches(&bomb).next().unwrap().unwrap();
        assert_eq!(
            view.records(OUTPUT_CAP).unwrap_err(),
            BatchError::OutputTooLarge { cap: OUTPUT_CAP },
            "{codec}"
        );
    }
}

#[test]
fn announced_counts_do_not_drive_memory() {
    let mut builder = BatchBuilder::new();
    builder.push(0, None, None, &[]).unwrap();
    let mut bytes = builder.build();
    bytes[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
    set_log_append_time(&mut bytes, 5);
    let view = batches(&bytes).next().unwrap().unwrap();
    assert_eq!(view.records(OUTPUT_CAP).unwrap_err(), BatchError::InvalidRecordCount(i32::MAX));
}
