//! Reads `#[kafka(..)]` attributes from structs and fields.

use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, ExprLit, Field, Fields, Ident, Lit, Path, RangeLimits, Result,
    Type,
};

/// A closed range of versions; open ends reach the ends of `i16`.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Versions {
    pub(crate) first: i16,
    pub(crate) last: i16,
}

impl Versions {
    pub(crate) const ALL: Versions = Versions { first: 0, last: i16::MAX };
}

impl Parse for Versions {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        match input.parse::<Expr>()? {
            Expr::Range(range) => {
                let first = range.start.as_deref().map_or(Ok(0), version)?;
                let last = match (&range.limits, range.end.as_deref()) {
                    (_, None) => i16::MAX,
                    (RangeLimits::Closed(_), Some(end)) => version(end)?,
                    (RangeLimits::HalfOpen(dots), Some(_)) => {
                        return Err(Error::new_spanned(dots, "version ranges are inclusive: write `..=`"));
                    }
                };
                Ok(Versions { first, last })
            }
            single => version(&single).map(|v| Versions { first: v, last: v }),
        }
    }
}

fn version(expr: &Expr) -> Result<i16> {
    match expr {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => number.base10_parse(),
        other => Err(Error::new_spanned(other, "expected a version number")),
    }
}

/// What `#[kafka(..)]` says about a message.
pub(crate) struct MessageAttributes {
    pub(crate) versions: Versions,
    pub(crate) flexible: Option<Versions>,
    pub(crate) request: Option<(Ident, Path)>,
}

impl MessageAttributes {
    pub(crate) fn read(input: &DeriveInput) -> Result<Self> {
        let (mut versions, mut flexible, mut key, mut response) = (None, None, None, None);
        for attribute in kafka_attributes(&input.attrs) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("versions") {
                    versions = Some(meta.value()?.parse::<Versions>()?);
                } else if meta.path.is_ident("flexible") {
                    flexible = Some(meta.value()?.parse::<Versions>()?);
                } else if meta.path.is_ident("key") {
                    key = Some(meta.value()?.parse::<Ident>()?);
                } else if meta.path.is_ident("response") {
                    response = Some(meta.value()?.parse::<Path>()?);
                } else {
                    return Err(meta.error("unknown message attribute"));
                }
                Ok(())
            })?;
        }
        let request = match (key, response) {
            (Some(key), Some(response)) => Some((key, response)),
            (None, None) => None,
            _ => {
                return Err(Error::new_spanned(&input.ident, "a request needs both `key` and `response`"));
            }
        };
        let versions =
            versions.ok_or_else(|| Error::new_spanned(&input.ident, "a message needs `versions = ..`"))?;
        Ok(MessageAttributes { versions, flexible, request })
    }
}

/// One field of a message or struct.
pub(crate) struct WireField {
    pub(crate) ident: Ident,
    pub(crate) ty: Type,
    /// `T` of `Option<T>`.
    pub(crate) option_of: Option<Type>,
    pub(crate) versions: Versions,
    /// Only meaningful for an `Option`.
    pub(crate) nullable: Versions,
    pub(crate) default: Option<Expr>,
    pub(crate) tag: Option<u32>,
    pub(crate) ignorable: bool,
}

impl WireField {
    fn read(field: &Field) -> Result<Self> {
        let Some(ident) = field.ident.clone() else {
            return Err(Error::new_spanned(field, "fields must be named"));
        };
        let mut out = WireField {
            ident,
            ty: field.ty.clone(),
            option_of: option_of(&field.ty),
            versions: Versions::ALL,
            nullable: Versions::ALL,
            default: None,
            tag: None,
            ignorable: false,
        };
        for attribute in kafka_attributes(&field.attrs) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("versions") {
                    out.versions = meta.value()?.parse()?;
                } else if meta.path.is_ident("nullable") {
                    out.nullable = meta.value()?.parse()?;
                } else if meta.path.is_ident("default") {
                    out.default = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("tag") {
                    out.tag = Some(meta.value()?.parse::<syn::LitInt>()?.base10_parse()?);
                } else if meta.path.is_ident("ignorable") {
                    out.ignorable = true;
                } else {
                    return Err(meta.error("unknown field attribute"));
                }
                Ok(())
            })?;
        }
        if out.option_of.is_none() && out.nullable != Versions::ALL {
            return Err(Error::new_spanned(&field.ty, "`nullable` needs an `Option`"));
        }
        Ok(out)
    }

    /// All fields of a struct, in wire order; tagged ones last, by tag.
    pub(crate) fn read_all(input: &DeriveInput) -> Result<Vec<WireField>> {
        let Data::Struct(data) = &input.data else {
            return Err(Error::new_spanned(&input.ident, "only structs are messages"));
        };
        let fields: Vec<WireField> = match &data.fields {
            Fields::Named(named) => named.named.iter().map(WireField::read).collect::<Result<_>>()?,
            Fields::Unit => Vec::new(),
            Fields::Unnamed(unnamed) => {
                return Err(Error::new_spanned(unnamed, "fields must be named"));
            }
        };
        let (mut tagged, mut all): (Vec<_>, Vec<_>) = fields.into_iter().partition(|f| f.tag.is_some());
        tagged.sort_by_key(|f| f.tag);
        if let Some(pair) = tagged.windows(2).find(|pair| pair[0].tag == pair[1].tag) {
            return Err(Error::new_spanned(&pair[1].ident, "tag used twice"));
        }
        all.append(&mut tagged);
        Ok(all)
    }
}

fn kafka_attributes(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attributes.iter().filter(|a| a.path().is_ident("kafka"))
}

fn option_of(ty: &Type) -> Option<Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    if last.ident != "Option" {
        return None;
    }
    let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return None;
    };
    match arguments.args.first() {
        Some(syn::GenericArgument::Type(inner)) => Some(inner.clone()),
        _ => None,
    }
}
