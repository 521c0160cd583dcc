//! A person with a clean clone and a terminal.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use volmedic_testkit::clone::Clone;

/// For any one block. Cargo may have to compile everything, on a machine that does other things besides.
const DEADLINE: &str = "3000";

pub(crate) const README: Readme = Readme(include_str!("../../../../README.md"));

pub(crate) struct Readme(&'static str);

impl Readme {
    /// What stands between ```sh and ```.
    pub(crate) fn blocks(&self) -> Vec<String> {
        let begun = self.0.split("```sh\n").skip(1);
        begun.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
    }

    /// The one block with this in it.
    pub(crate) fn block(&self, word: &str) -> String {
        let mut found = self.blocks().into_iter().filter(|block| block.contains(word));
        let block = found.next().unwrap_or_else(|| panic!("the README has no block with `{word}`"));
        assert!(found.next().is_none(), "`{word}` is in several blocks of the README");
        block
    }
}

pub(crate) struct Newcomer {
    clone: Clone,
    _turn: File,
}

impl Newcomer {
    pub(crate) fn new() -> Self {
        assert!(rustix::process::geteuid().is_root(), "the README's driver takes root; run this as root");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("newcomer");
        let clone = Clone::of_head(&root, &place).unwrap();
        let turn = clone.turn().unwrap();
        Self { clone, _turn: turn }
    }

    /// What a shell makes of these lines. What they started in the background is ended with them.
    pub(crate) fn run(&self, lines: &str) -> Output {
        assert_is_a_program("cargo");
        let script = format!("trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n{lines}");
        let mut shell = Command::new("timeout");
        shell
            .args(["--kill-after=20", DEADLINE, "bash", "-e", "-c", &script])
            .current_dir(self.clone.folder());
        // Cargo passes on where it put things, which are not this clone's.
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("CARGO") && name != "CARGO_HOME") {
                shell.env_remove(name);
            }
        }
        let output = shell.stdin(Stdio::null()).output().unwrap();
        assert_eq!(self.clone.changes().unwrap(), "", "{lines} changed the clone");
        output
    }
}

/// A script of that name could be a stand-in for the program that the README means.
fn assert_is_a_program(name: &str) {
    let path = std::env::var_os("PATH").unwrap();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    let found = found.unwrap_or_else(|| panic!("{name} is not in PATH"));
    let mut magic = [0; 4];
    File::open(&found).unwrap().read_exact(&mut magic).unwrap();
    assert_eq!(&magic, b"\x7fELF", "{} is not a compiled program", found.display());
}

pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
