//! Records on disk: whole or not at all, whenever the power goes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// `None` when there is no such file.
pub(crate) fn read_record<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(format_args!("read the record {}", path.display()))(error)),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|source| Error::Record { path: path.to_owned(), source })
}

/// Replaces a record: a temporary file beside it, flushed, renamed over it, and the directory flushed.
pub(crate) fn write_record<T: Serialize>(path: &Path, record: &T) -> Result<()> {
    let replace = || {
        let parent = path.parent().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let temporary = path.with_extension("json.tmp");
        let mut file = File::create(&temporary)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        sync_dir(parent)
    };
    replace().map_err(Error::io(format_args!("write the record {}", path.display())))
}

pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Removes a directory and all below it, never through a symbolic link. Gone already is fine.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(format_args!("remove {}", path.display()))(error))
        }
        _ => Ok(()),
    }
}
