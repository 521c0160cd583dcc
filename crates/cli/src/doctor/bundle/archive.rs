//! One tar archive from files in memory.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use jiff::Timestamp;

/// Writes all files, and gives the size of the archive. A file that exists is replaced only by a whole archive.
pub(super) fn save(files: &[(String, String)], path: &Path) -> anyhow::Result<u64> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = Path::new(&part);
    let written = write(files, part).and_then(|size| {
        std::fs::rename(part, path)?;
        Ok(size)
    });
    if written.is_err() {
        // Nothing half written stays. If it cannot be removed, the error below says what is wrong there.
        let _ = std::fs::remove_file(part);
    }
    written.with_context(|| {
        format!("cannot write {}; check the directory, or choose another file", path.display())
    })
}

fn write(files: &[(String, String)], path: &Path) -> io::Result<u64> {
    // One that a run left behind, or that another user put there with other permissions. If it cannot be removed, it cannot be
    // created either.
    let _ = std::fs::remove_file(path);
    let mut options = File::options();
    options.write(true).create_new(true);
    // It has much that only administrators may read.
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut tar = tar::Builder::new(BufWriter::new(options.open(path)?));
    let now = u64::try_from(Timestamp::now().as_second()).unwrap_or_default();
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(now);
        tar.append_data(&mut header, format!("volmedic-bundle/{name}"), text.as_bytes())?;
    }
    let mut file = tar.into_inner()?;
    file.flush()?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    Ok(file.metadata()?.len())
}
