//! The userspace file system does what programs expect of a file system.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::calls::Calls;
use crate::ground::{Ground, SOON};

async fn mounted(bytes: i64) -> (Ground, Calls, String, PathBuf) {
    let mut ground = Ground::new();
    ground.start(&[]);
    let mut csi = Calls::to(&ground).await;
    let id = csi.create("user", bytes, &[("kind", "fuse")], false).await.unwrap();
    let staging = ground.kubelet("staging");
    csi.stage(&id, &staging, false).await.unwrap();
    (ground, csi, id, staging.into())
}

async fn end(ground: Ground, mut csi: Calls, id: String, root: PathBuf) {
    csi.unstage(&id, root.to_str().unwrap()).await.unwrap();
    csi.delete(&id).await.unwrap();
    ground.assert_clean();
}

#[tokio::test]
async fn files_directories_and_links() {
    let (ground, csi, id, root) = mounted(1 << 30).await;
    let at = |name: &str| root.join(name);

    fs::create_dir_all(at("a/b/c")).unwrap();
    fs::write(at("a/b/c/file"), "hello").unwrap();
    fs::rename(at("a/b"), at("moved")).unwrap();
    assert_eq!(fs::read_to_string(at("moved/c/file")).unwrap(), "hello");
    assert_eq!(fs::remove_dir(at("moved")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    symlink("moved/c/file", at("link")).unwrap();
    assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("moved/c/file"));
    assert_eq!(fs::read_to_string(at("link")).unwrap(), "hello");
    fs::hard_link(at("moved/c/file"), at("second")).unwrap();
    assert_eq!(fs::metadata(at("second")).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(at("second")).unwrap().ino(), fs::metadata(at("link")).unwrap().ino());
    assert_eq!(File::create_new(at("second")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    fs::write(at("other"), "replaced").unwrap();
    fs::rename(at("second"), at("other")).unwrap();
    assert_eq!(fs::read_to_string(at("other")).unwrap(), "hello");
    assert_eq!(fs::read_to_string(at("missing")).unwrap_err().kind(), ErrorKind::NotFound);

    // More entries than one answer of the kernel's holds.
    fs::create_dir(at("many")).unwrap();
    for number in 0..3_000 {
        File::create(at(&format!("many/a-rather-long-file-name-{number}"))).unwrap();
    }
    assert_eq!(fs::read_dir(at("many")).unwrap().map(Result::unwrap).count(), 3_000);
    fs::remove_dir_all(at("many")).unwrap();
    assert!(!at("many").exists());
    end(ground, csi, id, root).await;
}

#[tokio::test]
async fn contents_attributes_and_open_files() {
    let (ground, csi, id, root) = mounted(1 << 30).await;
    let at = |name: &str| root.join(name);

    let data: Vec<u8> = (0..5_000_000_u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    let mut file = File::options().create_new(true).read(true).write(true).open(at("data")).unwrap();
    file.write_all(&data).unwrap();
    file.sync_all().unwrap();
    file.rewind().unwrap();
    let mut read = Vec::new();
    file.read_to_end(&mut read).unwrap();
    assert!(read == data);
    file.set_len(100).unwrap();
    assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), 100);
    file.write_at(b"far", 1_000_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1_000_003);
    File::options().append(true).open(at("data")).unwrap().write_all(b"more").unwrap();
    assert_eq!(fs::metadata(at("data")).unwrap().len(), 1_000_007);

    // Deleted while open, it stays readable.
    fs::remove_file(at("data")).unwrap();
    let mut bytes = [0; 3];
    file.read_exact_at(&mut bytes, 1_000_000).unwrap();
    assert_eq!(&bytes, b"far");
    drop(file);

    fs::write(at("script"), "").unwrap();
    fs::set_permissions(at("script"), Permissions::from_mode(0o750)).unwrap();
    chown(at("script"), Some(1000), Some(2000)).unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123);
    File::options().write(true).open(at("script")).unwrap().set_modified(then).unwrap();
    let found = fs::metadata(at("script")).unwrap();
    assert_eq!((found.mode() & 0o7777, found.uid(), found.gid()), (0o750, 1000, 2000));
    assert_eq!(found.modified().unwrap(), then);
    // A set-group-id directory passes its group on.
    fs::create_dir(at("shared")).unwrap();
    chown(at("shared"), None, Some(3000)).unwrap();
    fs::set_permissions(at("shared"), Permissions::from_mode(0o2775)).unwrap();
    fs::write(at("shared/file"), "").unwrap();
    assert_eq!(fs::metadata(at("shared/file")).unwrap().gid(), 3000);

    // A memory map reads what was written.
    let tool = std::process::Command::new("sh")
        .arg("-c")
        .arg("cp /bin/sh ./copy && ./copy -c 'exit 7'")
        .current_dir(&root)
        .status();
    assert_eq!(tool.unwrap().code(), Some(7), "a program can be run from the volume");
    end(ground, csi, id, root).await;
}

#[tokio::test]
async fn a_full_volume_is_full_and_has_room_again() {
    let (ground, mut csi, id, root) = mounted(16 << 20).await;
    let path = root.to_str().unwrap().to_owned();
    let fill = |name: &str| -> io::Result<()> { fs::write(root.join(name), vec![7; 6 << 20]) };
    fill("one").unwrap();
    fill("two").unwrap();
    assert_eq!(fill("three").unwrap_err().kind(), ErrorKind::StorageFull);
    let usage = &csi.stats(&id, &path).await.unwrap().usage[0];
    assert_eq!(usage.total, 16 << 20);
    assert!(usage.used >= 12 << 20 && usage.available <= 4 << 20, "{usage:?}");
    fs::remove_file(root.join("one")).unwrap();
    fs::remove_file(root.join("three")).unwrap();
    fill("three").unwrap();

    // One file for 16 KiB of size, as other file systems have a limit too.
    let made = (0..2_000).find(|number| File::create(root.join(format!("empty-{number}"))).is_err());
    assert!(made.is_some_and(|made| (900..1_024).contains(&made)), "{made:?}");
    end(ground, csi, id, root).await;
}

#[tokio::test]
async fn a_volume_set_to_fail_fails_until_set_otherwise() {
    let (ground, mut csi, id, root) = mounted(1 << 30).await;
    fs::write(root.join("file"), "x").unwrap();
    let fails = || fs::read_dir(&root).is_err_and(|error| error.raw_os_error() == Some(5));
    let wait_until = |wanted: bool| {
        let deadline = Instant::now() + SOON;
        while fails() != wanted {
            assert!(Instant::now() < deadline, "failing never became {wanted}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    fs::write(ground.volume(&id).mounter_fault(), "eio").unwrap();
    wait_until(true);
    let condition = csi.stats(&id, root.to_str().unwrap()).await.unwrap().volume_condition.unwrap();
    assert!(condition.abnormal && condition.message.contains("RWIOError"), "{condition:?}");
    fs::remove_file(ground.volume(&id).mounter_fault()).unwrap();
    wait_until(false);
    assert!(!csi.stats(&id, root.to_str().unwrap()).await.unwrap().volume_condition.unwrap().abnormal);
    assert_eq!(fs::read_to_string(root.join("file")).unwrap(), "x");
    end(ground, csi, id, root).await;
}
