//! The one image of every node, made of busybox, and the base of others.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::image::Image;
use crate::process;

/// Ends immediately when it gets SIGTERM, which a bare `sleep` does not: the kernel keeps signals without a handler from
/// the first process of a container. So pods and their sandboxes stop in no time.
const WAIT: &str = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done";

/// Writes the archive to `path`.
pub(super) fn write(path: &Path) -> Result<()> {
    let archive = busybox(crate::IMAGE, &[])?.archive().context("cannot put the node's image together")?;
    fs::write(path, archive).with_context(|| format!("cannot write {}", path.display()))
}

/// An image with busybox in it, without the commands that something else will provide.
pub fn busybox(name: &str, without: &[&str]) -> Result<Image> {
    let busybox = find()?;
    let list = {
        let mut command = Command::new(&busybox);
        command.arg("--list");
        process::run(command, Duration::from_secs(20))?.or_fail("`busybox --list`")?
    };
    let program = fs::read(&busybox).with_context(|| format!("cannot read {}", busybox.display()))?;
    let wanted = list.split_whitespace().filter(|applet| !without.contains(applet));
    Ok(image(name, program, wanted))
}

fn find() -> Result<PathBuf> {
    let places = ["/usr/bin/busybox.static", "/bin/busybox.static", "/usr/bin/busybox", "/bin/busybox"];
    let found = places.into_iter().map(PathBuf::from).find(|place| place.is_file());
    found.with_context(|| format!("busybox is not in any of {}; install busybox-static", places.join(", ")))
}

fn image<'a>(name: &str, program: Vec<u8>, applets: impl Iterator<Item = &'a str>) -> Image {
    let mut image = Image::new(name);
    image.environment = vec!["PATH=/bin".into()];
    image.command = ["/bin/sh", "-c", WAIT].map(str::to_owned).into();
    for (folder, mode) in [("bin", 0o755), ("etc", 0o755), ("root", 0o700), ("tmp", 0o1777)] {
        image.folder(folder, mode);
    }
    image.file("bin/busybox", 0o755, program);
    let users = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n";
    image.file("etc/passwd", 0o644, users.to_vec());
    image.file("etc/group", 0o644, b"root:x:0:\nnobody:x:65534:\n".to_vec());
    for applet in applets.filter(|applet| *applet != "busybox") {
        image.link(&format!("bin/{applet}"), "busybox");
    }
    image
}
