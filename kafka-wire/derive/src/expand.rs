//! Turns the fields of a struct into its codec.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Error, Ident, Result};

use crate::attributes::{MessageAttributes, Versions, WireField};

/// Expansion of `#[derive(KafkaMessage)]`.
pub(crate) fn message(input: &DeriveInput) -> Result<TokenStream> {
    let attributes = MessageAttributes::read(input)?;
    let ident = &input.ident;
    let name = ident.to_string();
    let wire = nested(input)?;
    let (first, last) = (attributes.versions.first, attributes.versions.last);
    if last == i16::MAX {
        return Err(Error::new_spanned(ident, "a message needs a last version: `versions = 4..=18`"));
    }
    let flexible = match attributes.flexible {
        None => quote!(false),
        Some(Versions { first: 0, .. }) => quote!(true),
        Some(Versions { first, .. }) => quote!(version >= #first),
    };
    let request = attributes.request.map(|(key, response)| {
        quote! {
            impl ::kafka_wire_core::Request for #ident {
                const KEY: ::kafka_wire_core::ApiKey = ::kafka_wire_core::ApiKey::#key;
                type Response = #response;
            }
        }
    });
    Ok(quote! {
        #wire
        impl ::kafka_wire_core::Message for #ident {
            const NAME: &'static str = #name;
            const VERSIONS: ::core::ops::RangeInclusive<i16> = #first..=#last;
            #[allow(unused_variables)]
            fn is_flexible(version: i16) -> bool {
                #flexible
            }
        }
        #request
    })
}

/// Expansion of `#[derive(KafkaStruct)]`.
pub(crate) fn nested(input: &DeriveInput) -> Result<TokenStream> {
    let fields = WireField::read_all(input)?;
    let ident = &input.ident;
    let name = ident.to_string();
    let default = default_impl(ident, &fields);
    let sizes = fields.iter().filter(|f| f.tag.is_none()).map(min_size);
    let decode = decode_body(&name, &fields);
    let encode = encode_body(&name, &fields);
    let sample = sample_impl(ident, &fields);
    Ok(quote! {
        #default
        #[allow(unused_variables, unused_mut)]
        impl ::kafka_wire_core::wire::Wire for #ident {
            fn min_size(v: ::kafka_wire_core::wire::WireVersion) -> usize {
                let mut size = usize::from(v.flexible);
                #(#sizes)*
                size
            }
            fn decode_wire(
                r: &mut ::kafka_wire_core::Reader,
                v: ::kafka_wire_core::wire::WireVersion,
            ) -> ::core::result::Result<Self, ::kafka_wire_core::DecodeError> {
                #decode
            }
            fn encode_wire(
                &self,
                w: &mut ::kafka_wire_core::Writer,
                v: ::kafka_wire_core::wire::WireVersion,
            ) -> ::core::result::Result<(), ::kafka_wire_core::EncodeError> {
                #encode
            }
        }
        impl ::kafka_wire_core::wire::NullableWire for #ident {
            fn min_nullable_size(_: ::kafka_wire_core::wire::WireVersion) -> usize {
                1
            }
            fn decode_nullable(
                r: &mut ::kafka_wire_core::Reader,
                v: ::kafka_wire_core::wire::WireVersion,
            ) -> ::core::result::Result<Option<Self>, ::kafka_wire_core::DecodeError> {
                ::kafka_wire_core::wire::decode_nullable_struct(r, v)
            }
            fn encode_nullable(
                value: Option<&Self>,
                w: &mut ::kafka_wire_core::Writer,
                v: ::kafka_wire_core::wire::WireVersion,
            ) -> ::core::result::Result<(), ::kafka_wire_core::EncodeError> {
                ::kafka_wire_core::wire::encode_nullable_struct(value, w, v)
            }
        }
        #sample
    })
}

/// `v.number` lies in the range; `None` when it always does.
fn within(versions: Versions) -> Option<TokenStream> {
    let Versions { first, last } = versions;
    match (first, last) {
        (0, i16::MAX) => None,
        (0, last) => Some(quote!(v.number <= #last)),
        (first, i16::MAX) => Some(quote!(v.number >= #first)),
        (first, last) if first == last => Some(quote!(v.number == #first)),
        (first, last) => Some(quote!((#first..=#last).contains(&v.number))),
    }
}

fn default_value(field: &WireField) -> TokenStream {
    match &field.default {
        Some(expr) => quote!(#expr),
        None => quote!(::core::default::Default::default()),
    }
}

fn default_impl(ident: &Ident, fields: &[WireField]) -> TokenStream {
    let values = fields.iter().map(|f| {
        let (ident, value) = (&f.ident, default_value(f));
        quote!(#ident: #value)
    });
    quote! {
        #[allow(clippy::derivable_impls)]
        impl ::core::default::Default for #ident {
            fn default() -> Self {
                Self { #(#values),* }
            }
        }
    }
}

fn min_size(field: &WireField) -> TokenStream {
    let add = match &field.option_of {
        None => {
            let ty = &field.ty;
            quote!(size += <#ty as ::kafka_wire_core::wire::Wire>::min_size(v);)
        }
        Some(inner) => {
            quote!(size += <#inner as ::kafka_wire_core::wire::NullableWire>::min_nullable_size(v);)
        }
    };
    match within(field.versions) {
        None => add,
        Some(condition) => quote!(if #condition { #add }),
    }
}

/// An expression of type `Result<field type, DecodeError>`.
fn decode_value(name: &str, field: &WireField) -> TokenStream {
    let field_name = field.ident.to_string();
    let ty = &field.ty;
    let value = match &field.option_of {
        None => quote!(<#ty as ::kafka_wire_core::wire::Wire>::decode_wire(r, v)),
        Some(inner) => {
            let nullable = quote!(<#inner as ::kafka_wire_core::wire::NullableWire>::decode_nullable(r, v));
            match within(field.nullable) {
                None => nullable,
                Some(condition) => quote! {
                    if #condition {
                        #nullable
                    } else {
                        <#inner as ::kafka_wire_core::wire::Wire>::decode_wire(r, v).map(Some)
                    }
                },
            }
        }
    };
    let value =
        if field.option_of.is_some() && within(field.nullable).is_some() { quote!((#value)) } else { value };
    quote!(#value.map_err(|e| e.at(#name, #field_name)))
}

fn decode_body(name: &str, fields: &[WireField]) -> TokenStream {
    let idents = fields.iter().map(|f| &f.ident);
    let plain = fields.iter().map(|f| {
        let (ident, ty, default) = (&f.ident, &f.ty, default_value(f));
        if f.tag.is_some() {
            return quote!(let mut #ident: #ty = #default;);
        }
        let value = decode_value(name, f);
        match within(f.versions) {
            None => quote!(let #ident: #ty = #value?;),
            Some(condition) => {
                quote!(let #ident: #ty = if #condition { #value? } else { #default };)
            }
        }
    });
    let arms: Vec<_> = fields
        .iter()
        .filter_map(|f| {
            let tag = f.tag?;
            let guard = within(f.versions).map(|condition| quote!(if #condition));
            let (ident, value) = (&f.ident, decode_value(name, f));
            Some(quote!(#tag #guard => #ident = #value?,))
        })
        .collect();
    let tagged = if arms.is_empty() {
        quote!(r.tagged_fields(|_, _| Ok(false)))
    } else {
        quote! {
            r.tagged_fields(|tag, r| {
                match tag {
                    #(#arms)*
                    _ => return Ok(false),
                }
                Ok(true)
            })
        }
    };
    quote! {
        #(#plain)*
        if v.flexible {
            #tagged.map_err(|e| e.at(#name, "tagged fields"))?;
        }
        Ok(Self { #(#idents),* })
    }
}

/// An expression of type `Result<(), EncodeError>`.
fn encode_value(name: &str, field: &WireField) -> TokenStream {
    let ident = &field.ident;
    let field_name = ident.to_string();
    let ty = &field.ty;
    match &field.option_of {
        None => quote! {
            <#ty as ::kafka_wire_core::wire::Wire>::encode_wire(&self.#ident, w, v)
                .map_err(|e| e.at(#name, #field_name))
        },
        Some(inner) => {
            let nullable = quote! {
                <#inner as ::kafka_wire_core::wire::NullableWire>::encode_nullable(
                    self.#ident.as_ref(), w, v,
                )
            };
            let value = match within(field.nullable) {
                None => nullable,
                Some(condition) => quote! {
                    if #condition {
                        #nullable
                    } else {
                        match &self.#ident {
                            Some(value) =>
                                <#inner as ::kafka_wire_core::wire::Wire>::encode_wire(value, w, v),
                            None => Err(::kafka_wire_core::EncodeError::null()),
                        }
                    }
                },
            };
            quote!({ #value }.map_err(|e| e.at(#name, #field_name)))
        }
    }
}

fn is_default(field: &WireField) -> TokenStream {
    let (ident, ty, default) = (&field.ident, &field.ty, default_value(field));
    quote!({ let default: #ty = #default; self.#ident == default })
}

fn encode_body(name: &str, fields: &[WireField]) -> TokenStream {
    let plain = fields.iter().filter(|f| f.tag.is_none()).map(|f| {
        let value = encode_value(name, f);
        match within(f.versions) {
            None => quote!(#value?;),
            Some(condition) => {
                let absent = refuse_unless_default(name, f);
                quote!(if #condition { #value?; } #absent)
            }
        }
    });
    let tagged: Vec<_> = fields
        .iter()
        .filter_map(|f| {
            let tag = f.tag?;
            let (value, default) = (encode_value(name, f), is_default(f));
            let condition = within(f.versions).unwrap_or_else(|| quote!(true));
            let absent = refuse_unless_default(name, f);
            Some(quote! {
                if v.flexible && #condition {
                    if !#default {
                        tagged.field(#tag, |w| #value)?;
                    }
                } #absent
            })
        })
        .collect();
    if tagged.is_empty() {
        return quote! {
            #(#plain)*
            if v.flexible {
                w.empty_tagged_fields();
            }
            Ok(())
        };
    }
    quote! {
        #(#plain)*
        let mut tagged = ::kafka_wire_core::writer::TaggedFields::default();
        #(#tagged)*
        if v.flexible {
            tagged.write(w);
        }
        Ok(())
    }
}

fn refuse_unless_default(name: &str, field: &WireField) -> TokenStream {
    if field.ignorable {
        return TokenStream::new();
    }
    let (field_name, default) = (field.ident.to_string(), is_default(field));
    quote! {
        else if !#default {
            return Err(::kafka_wire_core::EncodeError::not_in_version(v.number)
                .at(#name, #field_name));
        }
    }
}

fn sample_impl(ident: &Ident, fields: &[WireField]) -> TokenStream {
    let values = fields.iter().map(|f| {
        let (ident, ty, default) = (&f.ident, &f.ty, default_value(f));
        let value = match &f.option_of {
            None => quote!(<#ty as ::kafka_wire_core::sample::Sample>::sample(s, v)),
            Some(inner) => {
                let nullable = within(f.nullable).unwrap_or_else(|| quote!(true));
                quote! {
                    if #nullable && s.one_in(3) {
                        None
                    } else {
                        Some(<#inner as ::kafka_wire_core::sample::Sample>::sample(s, v))
                    }
                }
            }
        };
        let value = match f.tag {
            Some(_) => quote!(if s.one_in(2) { #default } else { #value }),
            None => value,
        };
        match within(f.versions) {
            None => quote!(#ident: #value),
            Some(condition) => quote!(#ident: if #condition { #value } else { #default }),
        }
    });
    quote! {
        #[cfg(feature = "testing")]
        #[allow(unused_variables)]
        impl ::kafka_wire_core::sample::Sample for #ident {
            fn sample(
                s: &mut ::kafka_wire_core::sample::Sampler,
                v: ::kafka_wire_core::wire::WireVersion,
            ) -> Self {
                Self { #(#values),* }
            }
        }
    }
}
