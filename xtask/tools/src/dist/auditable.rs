//! The list of crates inside the program itself, where vulnerability scanners look for it: as cargo-auditable writes it,
//! compressed JSON in the ELF section `.dep-v0`. The section is added after linking, so that the program is compiled once
//! for `cargo run --release` and for what is shipped.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};

use super::components::Components;
use crate::child;

const SECTION: &str = ".dep-v0";
const LIMIT: Duration = Duration::from_mins(1);
/// How much a stored block of deflate holds at most.
const BLOCK: usize = 0xffff;

/// Adds the section to the program.
pub(super) fn embed(program: &Path, components: &Components) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a folder for the list of crates")?;
    let data = folder.path().join("crates");
    fs::write(&data, zlib(list(components).to_string().as_bytes()))
        .with_context(|| format!("cannot write {}", data.display()))?;
    let mut command = Command::new("objcopy");
    command.arg("--remove-section").arg(SECTION);
    command.arg("--add-section").arg(format!("{SECTION}={}", data.display()));
    command.arg("--set-section-flags").arg(format!("{SECTION}=noload,readonly"));
    command.arg(program).stdin(Stdio::null());
    child::wait(command, LIMIT).map_err(|why| {
        anyhow!(
            "the list of crates cannot be added to {}: objcopy {why}; it comes with the linker (Debian: binutils)",
            program.display()
        )
    })
}

/// What scanners read: each crate with its version, where it comes from, and the positions of those that it uses.
fn list(components: &Components) -> Value {
    let Components { packages, uses, root } = components;
    let entries = packages.iter().zip(uses).enumerate().map(|(position, (package, uses))| {
        let source = match package.source.as_deref() {
            None => "local",
            Some(source) if source.starts_with("registry+") => "crates.io",
            Some(_) => "other",
        };
        let mut entry = json!({"name": package.name, "version": package.version, "source": source});
        if !uses.is_empty() {
            entry["dependencies"] = json!(uses);
        }
        if position == *root {
            entry["root"] = json!(true);
        }
        entry
    });
    json!({"packages": entries.collect::<Vec<_>>()})
}

/// As a zlib stream. Not made smaller: the list has a few kilobytes, and this needs no further crate.
fn zlib(data: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x01];
    let mut blocks = data.chunks(BLOCK).peekable();
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        stream.push(u8::from(blocks.peek().is_none()));
        stream.extend(length.to_le_bytes());
        stream.extend((!length).to_le_bytes());
        stream.extend(block);
    }
    stream.extend(adler32(data).to_be_bytes());
    stream
}

fn adler32(data: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let (low, high) = data.iter().fold((1, 0), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % MODULUS;
        (low, (high + low) % MODULUS)
    });
    high << 16 | low
}

#[cfg(test)]
mod tests {
    use super::super::components;
    use super::*;

    /// Unpacked by another implementation than ours.
    fn unpack(stream: &[u8]) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("stream");
        fs::write(&file, stream).unwrap();
        let mut perl = Command::new("perl");
        perl.args([
            "-MIO::Uncompress::Inflate=inflate",
            "-e",
            "inflate($ARGV[0] => '-') or die 'not a zlib stream'",
        ]);
        let output = perl.arg(&file).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    #[test]
    fn streams_of_all_sizes_are_read_by_another_program() {
        for size in [1, 100, BLOCK, BLOCK + 1, 3 * BLOCK + 7] {
            let data: Vec<u8> = (0..size).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect();
            assert!(unpack(&zlib(&data)) == data, "{size} bytes");
        }
    }

    #[test]
    fn a_program_still_runs_and_has_the_list() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::copy("/bin/true", &program).unwrap();
        let components = components::example();
        embed(&program, &components).unwrap();
        embed(&program, &components).unwrap();
        assert!(Command::new(&program).status().unwrap().success());
        let section = folder.path().join("section");
        let mut dump = Command::new("objcopy");
        dump.arg("--dump-section").arg(format!("{SECTION}={}", section.display())).arg(&program);
        assert!(dump.status().unwrap().success());
        let list: Value = serde_json::from_slice(&unpack(&fs::read(section).unwrap())).unwrap();
        assert_eq!(
            list,
            json!({"packages": [
                {"name": "app", "version": "1.0.0", "source": "local", "dependencies": [2], "root": true},
                {"name": "below", "version": "1.0.0", "source": "crates.io"},
                {"name": "linked", "version": "1.0.0", "source": "crates.io", "dependencies": [1]},
            ]})
        );
    }

    #[test]
    fn what_is_no_program_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("text");
        fs::write(&file, "text").unwrap();
        let error = embed(&file, &components::example()).unwrap_err().to_string();
        assert!(error.contains("cannot be added to") && error.contains("text"), "{error}");
    }
}
