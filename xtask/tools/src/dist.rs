//! `cargo xtask dist`: what is shipped. A static program, an image with nothing else in it, the chart, a list of all that
//! went in, how it was made, and checksums of the lot, signed if a key is given.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use volmedic_testkit::image::{Image, full_name};
use volmedic_testkit::{hex_digest, packages};

use crate::child;
use crate::say;
use crate::workspace::{self, Workspace};
use components::Components;
use provenance::Build;

mod auditable;
mod components;
mod krew;
mod provenance;
mod sbom;
mod sign;

const BUILD_LIMIT: Duration = Duration::from_hours(1);
const RUN_LIMIT: Duration = Duration::from_secs(30);
const PROGRAM: &str = "volmedic";

/// Build what is shipped: a static program, an image, the chart, a bill of materials, checksums
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The result is in target/volmedic-dist of the checkout, wherever CARGO_TARGET_DIR is. From nothing the \
                        build takes about 4 minutes on two idle cores; it needs a static C library (Debian: libc6-dev).\n\n\
                        Exit codes: 0 everything was made, 1 something could not be, 2 the command line is wrong."
)]
pub(crate) struct Args {
    /// The image's name, without a tag
    #[arg(long, default_value = "volmedic", value_name = "NAME")]
    image: String,
    /// A private key (PEM, curve P-256) to sign the checksums with
    #[arg(long, value_name = "FILE")]
    sign: Option<PathBuf>,
    /// The address of the folder where the files will be published, for krew's manifest
    #[arg(long, value_name = "URL")]
    release_url: Option<String>,
    /// Then compile everything again from nothing, in the same folder, and fail if a file of the result differs
    #[arg(long)]
    twice: bool,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    make(workspace, args)?;
    if args.twice { again(workspace, args) } else { Ok(()) }
}

/// Makes all of it a second time. A signature is another one each time, which is why it is left out.
fn again(workspace: &Workspace, args: &Args) -> Result<()> {
    let folder = workspace.root.join("target/volmedic-dist");
    let all = || -> Result<Vec<(String, String)>> {
        Ok(digests(&folder)?.into_iter().filter(|(name, _)| name != "SHA256SUMS.sig").collect())
    };
    let first = all()?;
    // At the same path, because a program has the paths of generated sources in it.
    let (built, aside) = (workspace.target.join("release"), workspace.target.join("release-first"));
    fs::rename(&built, &aside).with_context(|| format!("cannot move {} aside", built.display()))?;
    say::line("again, from nothing");
    make(workspace, args)?;
    let second = all()?;
    let differ: Vec<&str> =
        first.iter().filter(|file| !second.contains(file)).map(|(name, _)| name.as_str()).collect();
    if !differ.is_empty() || first.len() != second.len() {
        bail!("not reproducible: {} differ; the first build is in {}", differ.join(", "), aside.display());
    }
    fs::remove_dir_all(&aside).with_context(|| format!("cannot remove {}", aside.display()))?;
    say::line(format_args!("reproducible: {} files have the same digests as before", second.len()));
    Ok(())
}

fn make(workspace: &Workspace, args: &Args) -> Result<()> {
    let start = Instant::now();
    let signer = args.sign.as_deref().map(sign::Signer::read).transpose()?;
    let compiler = compiler()?;
    say::line("1/3 the program, as it is shipped. The first build takes about 4 minutes on two idle cores.");
    let built = build(workspace)?;
    // In the checkout and not in cargo's folder, so that what the documents say can be typed as it is.
    let folder = workspace.root.join("target/volmedic-dist");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot clear {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let program = folder.join(PROGRAM);
    fs::copy(&built, &program).with_context(|| format!("cannot copy {}", built.display()))?;
    let components = Components::of(workspace, PROGRAM, &compiler.target);
    let components = components.context("the list of components cannot be made")?;
    auditable::embed(&program, &components)?;
    let version = works(&program)?;

    say::line("2/3 the image");
    let image = image(&program, &args.image, &version)?;
    let put = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))
    };
    put(&format!("volmedic-image-{version}.tar"), &image.archive().context("the image cannot be made")?)?;
    say::line("3/3 the chart, the plugin for krew, the bill of materials and the checksums");
    package(&workspace.root.join("deploy/chart"), &version, &folder)?;
    krew::write(&folder, &workspace.root, &compiler.target, &version, args.release_url.as_deref())?;
    put("volmedic.cdx.json", format!("{:#}\n", sbom::of(&components)).as_bytes())?;
    let build = Build::of(workspace, &args.image, &compiler.target, &compiler.name)?;
    let statement = provenance::statement(&build, &digests(&folder)?);
    put("volmedic.provenance.json", format!("{statement:#}\n").as_bytes())?;
    let sums = checksums(&folder)?;
    put("SHA256SUMS", sums.as_bytes())?;
    if let Some(signer) = signer {
        put("SHA256SUMS.sig", format!("{}\n", signer.sign(sums.as_bytes())?).as_bytes())?;
    }
    list(&folder)?;
    say::line(format_args!(
        "All of it is in {}, made in {} s. The image is named {}. README.md, \"On a cluster\", says how to load it and how \
         to install the chart.",
        folder.display(),
        start.elapsed().as_secs(),
        full_name(&image.name),
    ));
    Ok(())
}

/// The compiler that builds the program.
struct Compiler {
    /// Its name and version.
    name: String,
    /// The machine that it builds for.
    target: String,
}

fn compiler() -> Result<Compiler> {
    let output = Command::new("rustc").arg("-vV").stdin(Stdio::null()).output();
    let output = output.context("rustc did not start; is it in PATH?")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let target = text.lines().find_map(|line| line.strip_prefix("host: "));
    let target = target.ok_or_else(|| anyhow!("`rustc -vV` does not say what machine this is: {text}"))?;
    Ok(Compiler { name: text.lines().next().unwrap_or_default().to_owned(), target: target.to_owned() })
}

/// Builds the program as it is shipped and says where it is. `bench` measures the same file.
///
/// Everything but the program's own crate is what `cargo run --release` compiles too: only the last step differs, in that it
/// links the C library statically.
pub(crate) fn build(workspace: &Workspace) -> Result<PathBuf> {
    let mut command = workspace::cargo();
    command.args(["rustc", "--package=volmedic", "--bin=volmedic", "--release", "--locked"]);
    command.args(["--", "-Ctarget-feature=+crt-static"]).current_dir(&workspace.root).stdin(Stdio::null());
    child::wait(command, BUILD_LIMIT).map_err(|why| anyhow!("the program cannot be built: {why}"))?;
    Ok(workspace.target.join("release").join(PROGRAM))
}

/// The version that the program says it is, once it is known to run anywhere.
fn works(program: &Path) -> Result<String> {
    if !packages::is_static(program) {
        bail!("{} needs shared libraries, so it would not start in an empty image", program.display());
    }
    let mut command = Command::new("timeout");
    command.arg(RUN_LIMIT.as_secs().to_string()).arg(program).arg("--version").stdin(Stdio::null());
    let output = command.output().context("timeout did not start")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = said.trim().strip_prefix("volmedic ").filter(|_| output.status.success());
    version.map(str::to_owned).with_context(|| format!("{} --version said {said:?}", program.display()))
}

fn image(program: &Path, name: &str, version: &str) -> Result<Image> {
    let mut image = Image::new(&format!("{name}:{version}"));
    image.entrypoint = vec![format!("/{PROGRAM}")];
    // By number, so that the kubelet need not look for a name. Beside a driver it must be the user who owns the socket, as in
    // other sidecars; the chart sets another user for the hub.
    image.user = "0:0".into();
    for (label, value) in [("title", PROGRAM), ("version", version), ("licenses", env!("CARGO_PKG_LICENSE"))]
    {
        image.labels.insert(format!("org.opencontainers.image.{label}"), value.to_owned());
    }
    image.program(PROGRAM, program)?;
    Ok(image)
}

/// The chart in one file, as `helm package` would write it. Without helm, which would have to be compiled first and needs
/// Go. The same chart always gives the same bytes.
fn package(chart: &Path, version: &str, folder: &Path) -> Result<()> {
    let about = chart.join("Chart.yaml");
    let text = fs::read_to_string(&about).with_context(|| format!("cannot read {}", about.display()))?;
    for field in ["version", "appVersion"] {
        let wanted = format!("{field}: {version}");
        if !text.lines().any(|line| line == wanted) {
            bail!("{} must have the line `{wanted}`, because the program has that version", about.display());
        }
    }
    let mut tar = Command::new("tar");
    tar.args(["--create", "--dereference", "--sort=name", "--mtime=@0", "--owner=0", "--group=0"]);
    tar.args(["--numeric-owner", "--mode=u=rwX,go=rX", "--transform=s,^chart,volmedic,"]);
    tar.args(["--use-compress-program=gzip --no-name --best", "--exclude=.helmignore", "--file"]);
    tar.arg(folder.join(format!("volmedic-{version}.tgz"))).arg("--directory");
    tar.arg(chart.parent().unwrap_or(chart)).arg("chart").stdin(Stdio::null());
    child::wait(tar, RUN_LIMIT).map_err(|why| anyhow!("the chart cannot be packed: tar {why}"))
}

/// As `sha256sum --check` reads it.
fn checksums(folder: &Path) -> Result<String> {
    let lines = digests(folder)?.into_iter().map(|(name, digest)| format!("{digest}  {name}\n"));
    Ok(lines.collect::<Vec<_>>().concat())
}

/// The name and the SHA-256 digest of each file.
fn digests(folder: &Path) -> Result<Vec<(String, String)>> {
    let digest = |path: PathBuf| {
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), hex_digest(&bytes)))
    };
    files(folder)?.into_iter().map(digest).collect()
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn list(folder: &Path) -> Result<()> {
    for path in files(folder)? {
        let size = fs::metadata(&path).with_context(|| format!("cannot read {}", path.display()))?.len();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        say::line(format_args!("{:>10} KiB  {name}", size.div_ceil(1024)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_as_sha256sum_checks_them() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("b"), "two").unwrap();
        fs::write(folder.path().join("a"), "one").unwrap();
        let sums = checksums(folder.path()).unwrap();
        assert_eq!(sums.lines().map(|line| line.split("  ").nth(1).unwrap()).collect::<Vec<_>>(), ["a", "b"]);
        fs::write(folder.path().join("SHA256SUMS"), sums).unwrap();
        let check = |expected: bool| {
            let mut command = Command::new("sha256sum");
            command.args(["--check", "--strict", "--quiet", "SHA256SUMS"]).current_dir(folder.path());
            assert_eq!(command.stdin(Stdio::null()).output().unwrap().status.success(), expected);
        };
        check(true);
        fs::write(folder.path().join("a"), "other").unwrap();
        check(false);
    }

    #[test]
    fn a_chart_is_packed_whole_the_same_each_time_and_only_for_its_own_version() {
        let folder = tempfile::tempdir().unwrap();
        let chart = Workspace::here().unwrap().root.join("deploy/chart");
        let packed = || {
            package(&chart, env!("CARGO_PKG_VERSION"), folder.path()).unwrap();
            fs::read(folder.path().join(concat!("volmedic-", env!("CARGO_PKG_VERSION"), ".tgz"))).unwrap()
        };
        assert!(packed() == packed(), "not reproducible");
        let mut tar = Command::new("tar");
        tar.args(["--list", "--verbose", "--file"]).arg(&files(folder.path()).unwrap()[0]);
        let list = String::from_utf8(tar.output().unwrap().stdout).unwrap();
        for file in ["Chart.yaml", "values.yaml", "templates/hub.yaml", "files/crds/volumehealths.yaml"] {
            assert!(list.contains(&format!(" volmedic/{file}\n")), "{file} in {list}");
        }
        assert!(
            list.lines().all(|line| line.starts_with("-rw-r--r-- 0/0") || line.starts_with("drwxr-xr-x 0/0")),
            "{list}"
        );
        let error = package(&chart, "0.0.9", folder.path()).unwrap_err().to_string();
        assert!(error.contains("must have the line `version: 0.0.9`"), "{error}");
    }

    /// What is added to the compiled program is the same each time. `cargo xtask dist --twice` checks the compiler's part.
    #[test]
    fn the_same_program_gives_the_same_image() {
        let workspace = Workspace::here().unwrap();
        let target = compiler().unwrap().target;
        let made = || {
            let folder = tempfile::tempdir().unwrap();
            let program = folder.path().join(PROGRAM);
            fs::copy("/bin/true", &program).unwrap();
            let components = Components::of(&workspace, PROGRAM, &target).unwrap();
            auditable::embed(&program, &components).unwrap();
            let archive = image(&program, "volmedic", "1.0.0").unwrap().archive().unwrap();
            (hex_digest(&archive), sbom::of(&components).to_string())
        };
        let first = made();
        // The second in another folder, at another time.
        assert!(first == made(), "not reproducible");
    }

    #[test]
    fn a_program_with_libraries_is_not_shipped() {
        let error = works(Path::new("/proc/self/exe")).unwrap_err().to_string();
        assert!(error.contains("needs shared libraries"), "{error}");
    }
}
