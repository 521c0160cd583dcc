//! The README's commands, as a newcomer types them: in a clean clone, one block after the other.
//!
//! To compile everything once more, optimised, would take longer than all else. So `cargo run --release --` runs the
//! program of this build; with `VOLMEDIC_README=whole` in the environment it is cargo's to build it there.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use volmedic_testkit::{ControlPlane, helm};

/// For any one block. Cargo may have to build everything.
const DEADLINE: &str = "1500";

struct Newcomer {
    folder: TempDir,
    blocks: Vec<String>,
}

impl Newcomer {
    /// Clones what is committed, and reads what it says.
    fn arrives() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let clone = folder.path().join("volmedic");
        let mut git = Command::new("git");
        let output = git.args(["clone", "--quiet", "--depth=1"]).arg(format!("file://{}", path(&root)));
        let output = output.arg(&clone).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        let readme = fs::read_to_string(clone.join("README.md")).unwrap();
        let newcomer = Self { folder, blocks: blocks(&readme) };
        newcomer.program("cargo", CARGO);
        newcomer
    }

    fn clone(&self) -> PathBuf {
        self.folder.path().join("volmedic")
    }

    /// A program that is found before all others.
    fn program(&self, name: &str, script: &str) {
        let folder = self.folder.path().join("bin");
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join(name);
        fs::write(&file, script).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The one block with this in it.
    fn block(&self, word: &str) -> &str {
        let mut found = self.blocks.iter().filter(|block| block.contains(word));
        let block = found.next().unwrap_or_else(|| panic!("the README has no block with `{word}`"));
        assert!(found.next().is_none(), "`{word}` is in several blocks of the README");
        block
    }

    /// What a shell makes of it. Whatever a block started in the background is ended with it.
    fn types(&self, commands: &str, environment: &[(&str, &str)]) -> Output {
        let script = format!("trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n{commands}");
        let mut shell = Command::new("timeout");
        shell.args(["--kill-after=20", DEADLINE, "bash", "-e", "-c", &script]).current_dir(self.clone());
        let inherited = std::env::var("PATH").unwrap();
        shell.env("PATH", format!("{}:{inherited}", path(&self.folder.path().join("bin"))));
        shell.env("VOLMEDIC", env!("CARGO_BIN_EXE_volmedic")).envs(environment.iter().copied());
        // Cargo tells its children where it put things, which are not this clone's.
        for name in ["CARGO", "CARGO_MANIFEST_DIR", "CARGO_TARGET_DIR"] {
            shell.env_remove(name);
        }
        shell.output().unwrap()
    }
}

/// Stands before cargo, and lets it do what cannot be had cheaper.
const CARGO: &str = r#"#!/bin/bash
real() { PATH="${PATH#*:}" exec cargo "$@"; }
[ "$VOLMEDIC_README" = whole ] && real "$@"
case "$*" in
    "run --release -- "*) shift 3; exec "$VOLMEDIC" "$@" ;;
    "xtask "*" --help") shift; exec "${VOLMEDIC%/*}/xtask" "$@" ;;
    *) echo "the README runs cargo $*, which nobody tests" >&2; exit 1 ;;
esac
"#;

/// What stands between ```sh and ```.
fn blocks(readme: &str) -> Vec<String> {
    let begun = readme.split("```sh\n").skip(1);
    begun.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn path(path: &Path) -> String {
    path.canonicalize().unwrap_or_else(|_| path.to_owned()).display().to_string()
}

#[test]
fn every_block_is_tried_here() {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let tried = ["-- demo\n", "helm install", "-- driver", "-- conformance", "cargo xtask test"];
    for block in blocks(&readme) {
        assert_eq!(
            tried.iter().filter(|word| block.contains(**word)).count(),
            1,
            "nobody tries this:\n{block}"
        );
    }
}

#[test]
fn the_demo_tells_its_story() {
    let newcomer = Newcomer::arrives();
    let output = newcomer.types(newcomer.block("-- demo\n"), &[]);
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn the_chart_installs_and_the_plugin_speaks() {
    let plane = ControlPlane::options().start().unwrap();
    let newcomer = Newcomer::arrives();
    let kubectl = plane.kubectl();
    let kubernetes = kubectl.get_program().to_str().unwrap();
    newcomer.program("kubectl", &format!("#!/bin/sh\nexec {kubernetes} kubectl \"$@\"\n"));
    newcomer.program("helm", &format!("#!/bin/sh\nexec {} \"$@\"\n", path(&helm::program().unwrap())));
    newcomer.program("kubectl-volmedic", "#!/bin/bash\nexec -a kubectl-volmedic \"$VOLMEDIC\" \"$@\"\n");
    let home = path(newcomer.folder.path());
    let environment = [("KUBECONFIG", plane.kubeconfig().to_str().unwrap()), ("HOME", &home)];
    let block = newcomer.block("helm install");
    let lines: Vec<&str> = block.lines().collect();
    let [install, doctor, status] = lines[..] else { panic!("three lines were expected:\n{block}") };

    let output = newcomer.types(install, &environment);
    assert!(output.status.success(), "{}", text(&output));
    // There is no kubelet here, so nothing of it runs, and the doctor has to find that.
    let output = newcomer.types(doctor, &environment);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("hub"), "{}", text(&output));
    let output = newcomer.types(status, &environment);
    assert!(output.status.success(), "{}", text(&output));
    assert!(!output.stdout.is_empty(), "a screen is never empty");
}

#[test]
fn a_driver_is_watched_and_judged() {
    let newcomer = Newcomer::arrives();
    let here = newcomer.folder.path().join("csi");
    fs::create_dir(&here).unwrap();
    // Not in everybody's /tmp, where two runs would meet.
    let mine = |block: &str| block.trim_end().replace("/tmp", &path(&here));
    let (serve, judge) = (mine(newcomer.block("-- driver")), mine(newcomer.block("-- conformance")));
    // Two terminals: in the second nobody types before the first says that it serves.
    let wait = format!("until [ -S {}/csi.sock ]; do sleep 0.1; done", path(&here));
    let output = newcomer.types(&format!("{serve} &\n{wait}\n{judge}"), &[("TMPDIR", &path(&here))]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("try.example.net"), "{}", text(&output));
}

/// They run longer than a test should: the first is what runs this, the others are what the tests of the cluster do. So
/// only that they are understood is tried.
#[test]
fn the_tasks_are_known() {
    let newcomer = Newcomer::arrives();
    for line in newcomer.block("cargo xtask test").lines() {
        let asked = format!("{} --help", line.split(" #").next().unwrap().trim_end());
        let output = newcomer.types(&asked, &[]);
        assert!(output.status.success(), "{asked}: {}", text(&output));
    }
}
