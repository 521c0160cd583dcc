//! A person with a clean clone and one terminal: the real cargo, the real kubectl, the real helm, and what the documents
//! say, typed as it is. The clone and its build cache are those of the test program `readme`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use tempfile::TempDir;
use volmedic_testkit::clone::Clone;
use volmedic_testkit::kubernetes::{self, Version};
use volmedic_testkit::{cache, helm};

use crate::agent::say;
use crate::stage::newcomers;

/// For any one block; cargo may have to build everything on a busy machine.
const DEADLINE: &str = "3600";

pub(crate) struct Terminal {
    clone: Clone,
    home: TempDir,
    /// What was exported so far.
    environment: BTreeMap<OsString, OsString>,
}

impl Terminal {
    /// In a clone of what is committed.
    pub(crate) fn open() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let clone = Clone::of_head(&root, &Path::new(env!("CARGO_TARGET_TMPDIR")).join("newcomer")).unwrap();
        let _ = fs::remove_dir_all(clone.folder().join("target/volmedic-dist"));
        let home = tempfile::tempdir().unwrap();
        let tools = home.path().join("tools");
        fs::create_dir(&tools).unwrap();
        // The program is every part of Kubernetes, by the name that it is called by.
        symlink(kubernetes::program(Version::DEFAULT).unwrap(), tools.join("kubectl")).unwrap();
        symlink(helm::program().unwrap(), tools.join("helm")).unwrap();

        // Cargo leaves its marks on what it runs, and this is not to be found by them.
        let of_cargo = |name: &str| {
            let kept = ["CARGO_HOME", "CARGO_BUILD_JOBS", "CARGO_NET_OFFLINE"].contains(&name);
            (name.starts_with("CARGO") && !kept) || ["LD_LIBRARY_PATH", "KUBECONFIG"].contains(&name)
        };
        let inherited = std::env::vars_os().filter(|(name, _)| !name.to_str().is_some_and(of_cargo));
        let mut environment: BTreeMap<OsString, OsString> = inherited.collect();
        let own = std::env::home_dir().unwrap();
        for (name, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            environment.entry(name.into()).or_insert_with(|| own.join(folder).into());
        }
        let path = [tools.as_os_str(), &environment[&OsString::from("PATH")]].join(":".as_ref());
        environment.insert("PATH".into(), path);
        environment.insert("HOME".into(), home.path().into());
        environment.insert("VOLMEDIC_CACHE".into(), cache::folder().unwrap().into());
        environment.insert("VOLMEDIC_CLUSTER".into(), newcomers().to_string().into());
        environment.insert("NO_COLOR".into(), "1".into());
        Self { clone, home, environment }
    }

    /// A file of the clone.
    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.clone.folder().join(path)).unwrap()
    }

    /// What a shell makes of these lines, all of which must succeed; gives what they print.
    pub(crate) fn types(&mut self, lines: &str) -> String {
        let began = Instant::now();
        let output = self.output(lines);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}:\n{lines}\n{said}\n{errors}", output.status);
        assert_eq!(self.clone.changes().unwrap(), "", "{lines} changed the clone");
        let first = lines.lines().next().unwrap_or_default();
        say(&format!("{:.1} s: {first}", began.elapsed().as_secs_f32()));
        said
    }

    /// As [`Self::types`], while nobody else compiles the program in this clone.
    pub(crate) fn in_turn(&mut self, lines: &str) -> String {
        let _turn = self.clone.turn().unwrap();
        self.types(lines)
    }

    /// As [`Self::types`], for what may fail.
    pub(crate) fn output(&mut self, lines: &str) -> Output {
        let exported = self.home.path().join("exported");
        let script = format!("{lines}\nenv --null > '{}'", exported.display());
        let mut shell = Command::new("timeout");
        shell.args(["--kill-after=20", DEADLINE, "bash", "-e", "-o", "pipefail", "-c", &script]);
        shell.current_dir(self.clone.folder()).env_clear().envs(&self.environment).stdin(Stdio::null());
        let output = shell.output().unwrap();
        if output.status.success() {
            let text = fs::read(&exported).unwrap();
            let entries = text.split(|byte| *byte == 0).filter_map(|entry| {
                let middle = entry.iter().position(|byte| *byte == b'=')?;
                let (name, value) = entry.split_at(middle);
                Some((OsString::from_vec(name.to_vec()), OsString::from_vec(value[1..].to_vec())))
            });
            self.environment = entries.collect();
        }
        output
    }
}
