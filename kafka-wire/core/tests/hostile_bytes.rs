//! Bytes of an enemy: no decoder panics, and none takes more memory than a small multiple of what it was given.
//!
//! One test only: the allocator counts for the whole process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod seed;

use std::alloc::System;

use bytes::Bytes;
use kafka_wire_core::messages::{Visitor, visit};
use kafka_wire_core::reader::{ALLOCATION_FLOOR, ALLOCATION_PER_BYTE};
use kafka_wire_core::sample::{Sample, Sampler};
use kafka_wire_core::{ApiKey, Message, Reader, Request, RequestHeader, ResponseHeader, Writer};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Inputs of each kind for each version of each message.
const INPUTS: usize = 400;
/// Long inputs for each version of each message.
const FLOODS: usize = 60;

/// Lengths that promise more than there is, in all the ways that the protocol writes lengths.
const LENGTHS: [&[u8]; 8] = [
    &[0x7f, 0xff, 0xff, 0xff],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0x7f],
    &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80],
    &[0x80, 0x80, 0x04],
    &[0x7f, 0xff],
    &[0x00, 0x00, 0xff, 0xff],
    &[0xff, 0xff, 0xff, 0xfe],
];

struct Enemy {
    sampler: Sampler,
    inputs: usize,
    accepted: usize,
}

impl Enemy {
    fn message<M: Message + Sample>(&mut self) {
        for version in M::VERSIONS {
            let decode = |bytes| M::decode_exact(bytes, version).is_ok();
            let context = format!("{} v{version}", M::NAME);
            for _ in 0..INPUTS {
                let noise = self.noise();
                self.feed(&context, noise, decode);
                let valid = self.encoded::<M>(version);
                let mutated = self.mutate(valid);
                self.feed(&context, mutated, decode);
            }
            // One length that the bytes behind it allow, which could be as many elements: structs take more memory than
            // their smallest encoding.
            for _ in 0..FLOODS {
                let mut bytes = self.encoded::<M>(version);
                bytes.truncate(self.sampler.below(32));
                let length = self.fitting_length(40_000);
                bytes.extend_from_slice(&length);
                bytes.resize(bytes.len() + 40_000, [0x00, 0x01, 0xff][self.sampler.below(3)]);
                self.feed(&context, bytes, decode);
            }
        }
    }

    fn encoded<M: Message + Sample>(&mut self, version: i16) -> Vec<u8> {
        let message: M = self.sampler.message(version).unwrap();
        let mut writer = Writer::new();
        message.encode(&mut writer, version).unwrap();
        writer.finish().into_bytes().unwrap().to_vec()
    }

    fn fitting_length(&mut self, most: usize) -> Vec<u8> {
        let length = u32::try_from(1 + self.sampler.below(most)).unwrap();
        let mut writer = Writer::new();
        if self.sampler.one_in(2) {
            writer.u32(length);
        } else {
            writer.uvarint(length);
        }
        writer.finish().into_bytes().unwrap().to_vec()
    }

    fn noise(&mut self) -> Vec<u8> {
        let length = self.sampler.below(64);
        let mut bytes = self.sampler.bytes(length);
        // Small numbers reach deeper than large ones.
        if self.sampler.one_in(2) {
            bytes.iter_mut().for_each(|byte| *byte &= 0x03);
        }
        bytes
    }

    fn mutate(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        for _ in 0..=self.sampler.below(3) {
            let at = self.sampler.below(bytes.len() + 1);
            match self.sampler.below(5) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.sampler.bits() as u8),
                2 => {
                    let length = LENGTHS[self.sampler.below(LENGTHS.len())];
                    let end = (at + length.len()).min(bytes.len());
                    bytes.splice(at..end, length.iter().copied());
                }
                3 if at < bytes.len() => {
                    bytes.remove(at);
                }
                _ if at < bytes.len() => bytes[at] ^= 1 << self.sampler.below(8),
                _ => {}
            }
        }
        bytes
    }

    fn feed(&mut self, context: &str, bytes: Vec<u8>, decode: impl FnOnce(Bytes) -> bool) {
        let allowed = ALLOCATION_PER_BYTE * bytes.len() + ALLOCATION_FLOOR;
        let (input, kept) = (Bytes::from(bytes.clone()), bytes);
        let region = Region::new(ALLOCATOR);
        let accepted = decode(input);
        let stats = region.change();
        let taken = stats.bytes_allocated + usize::try_from(stats.bytes_reallocated).unwrap_or(0);
        assert!(
            taken <= allowed,
            "{context}: {taken} bytes of memory for {} bytes: {:02x?}",
            kept.len(),
            &kept[..kept.len().min(100)]
        );
        self.inputs += 1;
        self.accepted += usize::from(accepted);
    }
}

impl Visitor for Enemy {
    fn api<R>(&mut self)
    where
        R: Request + Sample,
        R::Response: Sample,
    {
        self.message::<R>();
        self.message::<R::Response>();
    }
}

#[test]
fn no_bytes_panic_or_take_much_memory() {
    let sampler = seed::sampler("hostile_bytes", "no_bytes_panic_or_take_much_memory");
    let mut enemy = Enemy { sampler, inputs: 0, accepted: 0 };
    visit(&mut enemy);
    for _ in 0..100_000 {
        let mut bytes = enemy.noise();
        if bytes.len() >= 2 {
            // Most numbers name no API and end the header at once.
            let key = ApiKey::ALL[enemy.sampler.below(ApiKey::ALL.len())];
            bytes[..2].copy_from_slice(&key.code().to_be_bytes());
        }
        let version = enemy.sampler.bits() as i16;
        enemy.feed("RequestHeader", bytes.clone(), |b| RequestHeader::decode(&mut Reader::new(b)).is_ok());
        enemy.feed("ResponseHeader", bytes, |b| {
            ResponseHeader::decode(&mut Reader::new(b), ApiKey::Fetch, version).is_ok()
        });
    }
    // The enemy must be good enough to be believed sometimes, else it never gets deep.
    assert!(enemy.accepted > enemy.inputs / 100, "{} of {}", enemy.accepted, enemy.inputs);
    println!("{} inputs, {} accepted", enemy.inputs, enemy.accepted);
}
