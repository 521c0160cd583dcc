//! The part of `google/protobuf/descriptor.proto` that concerns the wire, with the CSI options spelled out.
//!
//! `prost_types` has the same messages, but drops extension options on decoding, and those are compared here, too.

use prost::Message;

/// A `FileDescriptorSet` whose files are not decoded yet.
#[derive(Clone, PartialEq, Message)]
struct FileSet {
    #[prost(bytes = "vec", repeated, tag = "1")]
    files: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct File {
    #[prost(string, optional, tag = "1")]
    pub(crate) name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(crate) package: Option<String>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) imports: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) messages: Vec<Msg>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) enums: Vec<Enum>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) services: Vec<Service>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) extensions: Vec<Field>,
    /// Names of packages for other languages; nothing that reaches the wire.
    #[prost(bytes = "vec", optional, tag = "8")]
    pub(crate) options: Option<Vec<u8>>,
    #[prost(string, optional, tag = "12")]
    pub(crate) syntax: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Msg {
    #[prost(string, optional, tag = "1")]
    pub(crate) name: Option<String>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) fields: Vec<Field>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) messages: Vec<Msg>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) enums: Vec<Enum>,
    #[prost(message, optional, tag = "7")]
    pub(crate) options: Option<MsgOptions>,
    #[prost(message, repeated, tag = "8")]
    pub(crate) oneofs: Vec<Oneof>,
    #[prost(message, repeated, tag = "9")]
    pub(crate) reserved: Vec<Range>,
    #[prost(string, repeated, tag = "10")]
    pub(crate) reserved_names: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Field {
    #[prost(string, optional, tag = "1")]
    pub(crate) name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(crate) extendee: Option<String>,
    #[prost(int32, optional, tag = "3")]
    pub(crate) number: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    pub(crate) label: Option<i32>,
    #[prost(int32, optional, tag = "5")]
    pub(crate) r#type: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub(crate) type_name: Option<String>,
    #[prost(message, optional, tag = "8")]
    pub(crate) options: Option<FieldOptions>,
    #[prost(int32, optional, tag = "9")]
    pub(crate) oneof_index: Option<i32>,
    #[prost(string, optional, tag = "10")]
    pub(crate) json_name: Option<String>,
    #[prost(bool, optional, tag = "17")]
    pub proto3_optional: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Oneof {
    #[prost(string, optional, tag = "1")]
    pub(crate) name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Enum {
    #[prost(string, optional, tag = "1")]
    pub(crate) name: Option<String>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) values: Vec<EnumValue>,
    #[prost(message, optional, tag = "3")]
    pub(crate) options: Option<AlphaOptions>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) reserved: Vec<Range>,
    #[prost(string, repeated, tag = "5")]
    pub(crate) reserved_names: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EnumValue {
    #[prost(string, optional, tag = "1")]
    pub(crate) name: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pub(crate) number: Option<i32>,
    #[prost(message, optional, tag = "3")]
    pub(crate) options: Option<AlphaOptions>,
}

/// Exclusive at its end for messages, inclusive for enums.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Range {
    #[prost(int32, optional, tag = "1")]
    pub(crate) start: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub(crate) end: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Service {
    #[prost(string, optional, tag = "1")]
    pub(crate) name: Option<String>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) methods: Vec<Method>,
    #[prost(message, optional, tag = "3")]
    pub(crate) options: Option<AlphaOptions>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Method {
    #[prost(string, optional, tag = "1")]
    pub(crate) name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(crate) input: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(crate) output: Option<String>,
    #[prost(message, optional, tag = "4")]
    pub(crate) options: Option<AlphaOptions>,
    #[prost(bool, optional, tag = "5")]
    pub(crate) client_streaming: Option<bool>,
    #[prost(bool, optional, tag = "6")]
    pub(crate) server_streaming: Option<bool>,
}

/// Options of enums, enum values, services and methods: 1060 is the alpha mark of each.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AlphaOptions {
    #[prost(bool, optional, tag = "1060")]
    pub(crate) alpha: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MsgOptions {
    #[prost(bool, optional, tag = "7")]
    pub(crate) map_entry: Option<bool>,
    #[prost(bool, optional, tag = "1060")]
    pub(crate) alpha: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct FieldOptions {
    #[prost(bool, optional, tag = "1059")]
    pub(crate) secret: Option<bool>,
    #[prost(bool, optional, tag = "1060")]
    pub(crate) alpha: Option<bool>,
}

/// The one file of that package in an encoded `FileDescriptorSet`. All of the file must be known to the messages above,
/// because a part dropped here would be a difference never seen; so the length must come out the same again.
pub(crate) fn file(set: &[u8], package: &str) -> Result<File, String> {
    let set = FileSet::decode(set).map_err(|error| format!("this is no descriptor set: {error}"))?;
    let mut found = None;
    for bytes in &set.files {
        let file =
            File::decode(bytes.as_slice()).map_err(|error| format!("this is no file descriptor: {error}"))?;
        if file.package.as_deref() != Some(package) {
            continue;
        }
        let (kept, all) = (file.encoded_len(), bytes.len());
        if kept != all {
            return Err(format!(
                "package {package}: {kept} of {all} bytes are understood; extend descriptor.rs"
            ));
        }
        if found.replace(file).is_some() {
            return Err(format!("the descriptor set has more than one file of package {package}"));
        }
    }
    found.ok_or_else(|| format!("the descriptor set has no file of package {package}"))
}
