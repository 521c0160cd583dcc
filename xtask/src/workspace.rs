//! The workspace as cargo sees it: packages, their targets and what they depend on.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;

/// All packages of one workspace.
#[derive(Debug, Deserialize)]
pub struct Workspace {
    #[serde(rename = "workspace_root")]
    pub root: PathBuf,
    #[serde(rename = "target_directory")]
    pub target: PathBuf,
    pub packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
pub struct Package {
    pub name: String,
    #[serde(rename = "manifest_path")]
    pub manifest: PathBuf,
    pub dependencies: Vec<Dependency>,
    pub targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
pub struct Dependency {
    pub name: String,
    /// `dev`, `build`, or nothing for an ordinary one.
    pub kind: Option<String>,
}

impl Dependency {
    pub fn for_tests_only(&self) -> bool {
        self.kind.as_deref() == Some("dev")
    }
}

#[derive(Debug, Deserialize)]
pub struct Target {
    pub name: String,
    /// `lib`, `bin`, `test` and the like.
    #[serde(default)]
    pub kind: Vec<String>,
    /// The root file of a library, program, test, benchmark, example or build script.
    #[serde(rename = "src_path")]
    pub root: PathBuf,
}

impl Workspace {
    /// The workspace that this program was started in.
    pub fn here() -> Result<Self> {
        // Cargo says where xtask is; without cargo the current folder is used.
        let folder = match std::env::var_os("CARGO_MANIFEST_DIR") {
            Some(folder) => PathBuf::from(folder),
            None => std::env::current_dir()
                .context("the current folder cannot be read; change to the checkout")?,
        };
        Self::of(&folder)
    }

    /// The workspace around `folder`.
    pub fn of(folder: &Path) -> Result<Self> {
        let output = cargo()
            .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
            .current_dir(folder)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| {
                anyhow!("cargo did not start in {}: {error}; is it installed?", folder.display())
            })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!(
                "`cargo metadata` in {} failed; correct the manifests first: {}",
                folder.display(),
                said.trim()
            );
        }
        serde_json::from_slice(&output.stdout)
            .context("`cargo metadata` printed what this program cannot read")
    }

    /// A path as seen from the workspace's root, for messages.
    pub fn relative<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.root).unwrap_or(path)
    }

    pub fn has(&self, name: &str) -> bool {
        self.packages.iter().any(|package| package.name == name)
    }

    /// Finds a package by its full name or by the name of its room (`health` for `volmedic-health`).
    pub fn find(&self, name: &str) -> Result<&Package> {
        self.packages.iter().find(|package| package.name == name || package.room() == name).ok_or_else(|| {
            let known: Vec<&str> = self.packages.iter().map(Package::room).collect();
            anyhow!("there is no part `{name}` in this workspace; the parts are: {}", known.join(", "))
        })
    }
}

impl Package {
    pub fn has_library(&self) -> bool {
        self.targets.iter().any(|target| target.root.ends_with("src/lib.rs"))
    }

    /// The names of its test programs besides the unit tests.
    pub fn test_programs(&self) -> impl Iterator<Item = &str> {
        let tests = self.targets.iter().filter(|target| target.kind.iter().any(|kind| kind == "test"));
        tests.map(|target| target.name.as_str())
    }

    /// The short name: `health` for `volmedic-health`.
    pub fn room(&self) -> &str {
        self.name.strip_prefix("volmedic-").unwrap_or(&self.name)
    }

    pub fn folder(&self) -> &Path {
        self.manifest.parent().unwrap_or(Path::new("."))
    }
}

/// The cargo that runs us, without the marks it left on our environment.
///
/// Some build scripts (ring's) run again when one of these variables changes, so a build from here and a build by
/// hand would rebuild each other's work every time.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_mark_of_cargo_run) {
            command.env_remove(name);
        }
    }
    command.envs(once_only());
    command
}

/// In CI nothing is compiled a second time, so nothing is kept for that: it takes a sixth of the time of a first build.
pub fn once_only() -> Option<(&'static str, &'static str)> {
    let keeps = std::env::var_os("CI").is_none() || std::env::var_os("CARGO_INCREMENTAL").is_some();
    (!keeps).then_some(("CARGO_INCREMENTAL", "0"))
}

/// One of [`TOOLS`](crate::TOOLS), compiled first if need be; cargo shows how far it is.
pub fn tool(name: &str) -> Command {
    let mut command = cargo();
    command.args(tool_arguments(name));
    command
}

/// What cargo is given for that.
pub fn tool_arguments(name: &str) -> [&str; 4] {
    ["run", "--package=xtask-tools", "--", name]
}

fn is_mark_of_cargo_run(name: &str) -> bool {
    ["CARGO_PKG_", "CARGO_BIN_", "CARGO_MANIFEST_"].iter().any(|start| name.starts_with(start))
        || ["CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE", "CARGO_TARGET_TMPDIR", "OUT_DIR"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_workspace_is_found_and_has_us() {
        let here = Workspace::here().unwrap();
        assert!(here.has("xtask"));
        assert_eq!(here.find("health").unwrap().name, "volmedic-health");
        assert_eq!(here.find("volmedic-health").unwrap().room(), "health");
        assert_eq!(here.relative(&here.root.join("a/b")), Path::new("a/b"));
    }

    #[test]
    fn an_unknown_part_gets_the_list() {
        let error = Workspace::here().unwrap().find("helth").unwrap_err().to_string();
        assert!(error.starts_with("there is no part `helth` in this workspace; the parts are: "), "{error}");
        assert!(error.contains("health") && error.contains("xtask"), "{error}");
    }

    #[test]
    fn a_folder_without_a_manifest_is_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let error = Workspace::of(folder.path()).unwrap_err().to_string();
        assert!(error.contains("correct the manifests first") && error.contains("Cargo.toml"), "{error}");
    }

    #[test]
    fn settings_of_the_user_stay_and_marks_of_cargo_go() {
        for kept in ["CARGO_HOME", "CARGO_TARGET_DIR", "CARGO_TERM_COLOR", "RUSTFLAGS"] {
            assert!(!is_mark_of_cargo_run(kept), "{kept}");
        }
        for dropped in ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR", "CARGO_BIN_EXE_xtask", "OUT_DIR"] {
            assert!(is_mark_of_cargo_run(dropped), "{dropped}");
        }
    }
}
