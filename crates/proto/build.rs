//! Compiles the proto files into OUT_DIR: the Rust types, the clients and servers, the descriptor set, and a redacting
//! `Debug` for every message that carries secrets. Needs no protoc and writes nothing into the source tree.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::{env, fs};

use protox::Compiler;
use protox::prost_reflect::{DescriptorPool, FieldDescriptor, MessageDescriptor, Value};

const FILES: [&str; 5] = ["csi.proto", "identity.proto", "healer.proto", "registration.proto", "relay.proto"];
const SECRET: &str = "csi.v1.csi_secret";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let out = PathBuf::from(env::var("OUT_DIR")?);

    let mut compiler = Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(true).open_files(FILES)?;
    let with_comments = compiler.file_descriptor_set();
    // Comments become documentation of the Rust types; the descriptor set at run time does without them.
    let encoded = compiler.include_source_info(false).encode_file_descriptor_set();
    fs::write(out.join("volmedic.fds"), encoded)?;

    let pool = compiler.descriptor_pool();
    let secretive = secretive_messages(&pool)?;
    fs::write(out.join("redacted.rs"), redacted(&secretive)?)?;

    tonic_prost_build::configure()
        // A driver serves a part of the calls; CSI wants UNIMPLEMENTED for the others.
        .generate_default_stubs(true)
        .skip_debug(secretive.iter().map(|Secretive { message, .. }| format!(".{}", message.full_name())))
        .compile_fds(with_comments)?;
    Ok(())
}

/// A message with at least one secret field.
struct Secretive {
    message: MessageDescriptor,
    secrets: Vec<FieldDescriptor>,
}

/// Every message that marks a field with the secret option, so that none can be forgotten.
fn secretive_messages(pool: &DescriptorPool) -> Result<Vec<Secretive>, Box<dyn Error>> {
    let option = pool
        .get_extension_by_name(SECRET)
        .ok_or_else(|| format!("the proto files define no option {SECRET}; secrets could not be redacted"))?;
    let is_secret = |field: &FieldDescriptor| *field.options().get_extension(&option) == Value::Bool(true);
    let mut found = Vec::new();
    for message in pool.all_messages() {
        let secrets: Vec<_> = message.fields().filter(is_secret).collect();
        if secrets.is_empty() {
            continue;
        }
        // The generator would print what is in a oneof by itself, and name nested types in its own way.
        let nested = message.child_messages().any(|child| !child.is_map_entry());
        if message.parent_message().is_some() || nested || message.oneofs().len() > 0 {
            let name = message.full_name();
            return Err(format!(
                "{name} has a secret, so it must be a top-level message without nested messages and oneofs; \
                 otherwise the secret could not be kept from being printed"
            )
            .into());
        }
        found.push(Secretive { message, secrets });
    }
    Ok(found)
}

/// The `Debug` implementations. Each names all fields, so that a field this function missed breaks the build.
fn redacted(messages: &[Secretive]) -> Result<String, fmt::Error> {
    let mut code = String::new();
    for Secretive { message, secrets } in messages {
        let mut bindings = String::new();
        let mut calls = String::new();
        for field in message.fields() {
            let name = field.name();
            if secrets.contains(&field) {
                write!(bindings, "r#{name}: _, ")?;
                write!(calls, ".field({name:?}, &crate::Redacted)")?;
            } else {
                write!(bindings, "r#{name}, ")?;
                write!(calls, ".field({name:?}, r#{name})")?;
            }
        }
        let (module, name) = (message.package_name().replace('.', "::"), message.name());
        writeln!(code, "impl ::core::fmt::Debug for crate::generated::{module}::{name} {{")?;
        writeln!(code, "    fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{")?;
        writeln!(code, "        let Self {{ {bindings}}} = self;")?;
        writeln!(code, "        f.debug_struct({name:?}){calls}.finish()")?;
        writeln!(code, "    }}\n}}")?;
    }
    Ok(code)
}
