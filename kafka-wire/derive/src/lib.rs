//! `#[derive(KafkaMessage)]` and `#[derive(KafkaStruct)]`: a plain struct with a few attributes becomes a Kafka message.
//!
//! The struct *is* the format's documentation: fields stand in wire order, the Rust type fixes the encoding, and
//! `#[kafka(..)]` says only what the type cannot.
//!
//! On the struct (`KafkaMessage` only):
//!
//! | attribute | meaning |
//! |---|---|
//! | `versions = 4..=18` | the versions of this message that the codec knows |
//! | `flexible = 12..` | the versions with compact lengths and tagged fields; left out = none |
//! | `key = Fetch, response = FetchResponse` | this is the request of that API, and its answer |
//!
//! On a field:
//!
//! | attribute | meaning |
//! |---|---|
//! | `versions = 5..` | the versions that carry the field (`5..`, `..=12`, `8..=10`, `6`); left out = all |
//! | `nullable = 1..` | the versions in which an `Option` may be null; left out = all that carry the field |
//! | `default = -1` | value where the version lacks the field, and of `Default`; left out = the type's own |
//! | `tag = 0` | a tagged field with this number: written only when it differs from its default |
//! | `ignorable` | dropped in silence when the version lacks the field; otherwise a value there is an error |
//!
//! Generated: `Default`, `Wire` (and `NullableWire`), `Message`, `Request`, and, with the feature `testing`, `Sample`.

mod attributes;
mod expand;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Derives the codec of a top-level request or response.
#[proc_macro_derive(KafkaMessage, attributes(kafka))]
pub fn derive_message(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand::message(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Derives the codec of a struct that is part of a message.
#[proc_macro_derive(KafkaStruct, attributes(kafka))]
pub fn derive_struct(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand::nested(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
