//! The seed of a randomised test: fixed by default, `WEIR_SEED` repeats or varies it.

use kafka_wire_core::sample::Sampler;

/// Randomness for the test `name` of the file `file`; prints the command that repeats the run if it fails.
pub(crate) fn sampler(file: &str, name: &str) -> Sampler {
    let seed = match std::env::var("WEIR_SEED") {
        Ok(text) => text.parse().expect("WEIR_SEED is a number"),
        Err(_) => 20_260,
    };
    eprintln!("repeat with: WEIR_SEED={seed} cargo test -p kafka-wire-core --test {file} {name}");
    Sampler::new(seed)
}
