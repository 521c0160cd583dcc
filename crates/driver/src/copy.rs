//! Images: made sparse, grown, and copied by reflink where the state directory's file system can, else extent by
//! extent with holes kept.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use rustix::fs::{SeekFrom, copy_file_range, ioctl_ficlone, seek};

use crate::error::{Error, Result};

/// A new sparse image, on disk when this returns.
pub(crate) fn make_image(image: &Path, bytes: u64) -> Result<()> {
    let make = || {
        let file = OpenOptions::new().create_new(true).write(true).open(image)?;
        file.set_len(bytes)?;
        file.sync_all()
    };
    make().map_err(Error::io(format_args!("make the image {} of {bytes} bytes", image.display())))
}

/// Makes an image larger; never smaller.
pub(crate) fn grow_image(image: &Path, bytes: u64) -> Result<()> {
    let grow = || {
        let file = OpenOptions::new().write(true).open(image)?;
        if file.metadata()?.len() < bytes {
            file.set_len(bytes)?;
            file.sync_all()?;
        }
        io::Result::Ok(())
    };
    grow().map_err(Error::io(format_args!("grow the image {} to {bytes} bytes", image.display())))
}

/// A copy of `from` that is at least `bytes` long. The source must not be written to meanwhile.
pub(crate) fn copy_image(from: &Path, to: &Path, bytes: u64) -> Result<()> {
    let copy = || {
        let source = File::open(from)?;
        let target = OpenOptions::new().create_new(true).read(true).write(true).open(to)?;
        let length = source.metadata()?.len();
        if ioctl_ficlone(&target, &source).is_err() {
            target.set_len(length)?;
            copy_extents(&source, &target, length)?;
        }
        target.set_len(bytes.max(length))?;
        target.sync_all()
    };
    copy().map_err(Error::io(format_args!("copy the image {} to {}", from.display(), to.display())))
}

fn copy_extents(source: &File, target: &File, length: u64) -> io::Result<()> {
    let mut at = 0;
    while at < length {
        let start = match seek(source, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = seek(source, SeekFrom::Hole(start))?.min(length);
        let (mut read, mut written) = (start, start);
        while read < end {
            let want = usize::try_from((end - read).min(1 << 26)).map_err(io::Error::other)?;
            if copy_file_range(source, Some(&mut read), target, Some(&mut written), want)? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
        }
        at = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::*;

    #[test]
    fn a_copy_has_the_bytes_and_keeps_the_holes() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        make_image(&from, 1 << 32).unwrap();
        let file = OpenOptions::new().write(true).open(&from).unwrap();
        for (at, text) in [(0, b"first"), (1 << 30, b"thing"), ((1 << 32) - 5, b"other")] {
            file.write_all_at(text, at).unwrap();
        }
        copy_image(&from, &to, (1 << 32) + 4096).unwrap();

        let copy = File::open(&to).unwrap();
        let mut bytes = [0; 5];
        for (at, text) in
            [(0, b"first"), (1 << 30, b"thing"), ((1 << 32) - 5, b"other"), (1 << 31, b"\0\0\0\0\0")]
        {
            copy.read_exact_at(&mut bytes, at).unwrap();
            assert_eq!(&bytes, text);
        }
        let metadata = copy.metadata().unwrap();
        assert_eq!(metadata.len(), (1 << 32) + 4096);
        assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks", metadata.blocks());
    }
}
