//! The mounter's own life, in its own process.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use fuser::{Config, Session, SessionACL};
use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::mount::{MountFlags, mount};
use rustix::process::{Resource, getppid, getrlimit, set_parent_process_death_signal, setrlimit};
use rustix::stdio::{dup2_stdin, dup2_stdout, stdin};

use super::passthrough::Passthrough;
use super::process::start_time;
use super::takeover::{ask_again, take_over};
use crate::error::{Error, Result};
use crate::mount::FUSE_TYPE;
use crate::record::MounterRecord;
use crate::state_dir::VolumeDir;
use crate::store::{read_record, write_record};

const LOCK_ATTEMPTS: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// What the driver passes to a mounter on its command line. The mountpoint itself, or the session to go on with, is open
/// on standard input; the path is for the record and for people.
#[derive(Clone, Debug)]
pub struct Mounter {
    pub volume: String,
    pub volume_dir: PathBuf,
    pub mountpoint: PathBuf,
    /// The process that started this one.
    pub parent: u32,
    pub readonly: bool,
    /// Another process mounted the volume and is dead; its session goes on here.
    pub take_over: bool,
}

/// Serves the volume until it is unmounted. Writes one byte to standard output when it is mounted.
pub fn run(mounter: &Mounter) -> Result<()> {
    let directory = VolumeDir::at(&mounter.volume_dir);
    let parent = getppid().map(|pid| pid.as_raw_nonzero().get());
    if parent != i32::try_from(mounter.parent).ok() {
        return Err(Error::Bug("the driver that asked for this mounter is gone".to_owned()));
    }
    let lock = File::create(directory.mounter_lock())
        .map_err(Error::io(format_args!("open {}", directory.mounter_lock().display())))?;
    // A dead predecessor's lock goes when the last of its threads does, so from here on none of them reads a request.
    take(&lock).map_err(Error::io("lock the volume; another mounter serves it"))?;
    let before = if mounter.take_over {
        read_record::<MounterRecord>(&directory.mounter_record())?.map_or(0, |record| record.generation)
    } else {
        0
    };
    let generation = before + u32::from(mounter.take_over);
    let filesystem = Passthrough::open(&directory, generation)?;
    many_descriptors();
    let mut config = Config::default();
    config.acl = SessionACL::All;
    config.n_threads = Some(4);
    let session = if mounter.take_over {
        let device = fcntl_dupfd_cloexec(stdin(), 3).map_err(Error::io("keep the session that goes on"))?;
        let session = take_over(filesystem, &device, config)?;
        introduce(&directory, mounter, session.as_fd().as_raw_fd(), generation)?;
        ask_again(&device);
        session
    } else {
        let device = File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .map_err(Error::io("open /dev/fuse; load the fuse module and run as root"))?;
        introduce(&directory, mounter, device.as_raw_fd(), generation)?;
        begin(mounter, filesystem, device, config)?
    };
    let ready = io::stdout().write_all(b"1").and_then(|()| io::stdout().flush());
    if let Err(error) = ready {
        // The driver died in between; the next one will find us by our record.
        tracing::warn!(%error, "the driver no longer waits for this mounter");
    }
    release_standard_streams();
    tracing::info!(volume = mounter.volume, mountpoint = %mounter.mountpoint.display(), "serving");
    session.run().map_err(Error::io("serve the volume"))?;
    // Unmounted in good order: there is nothing left to find.
    if let Err(error) = fs::remove_file(directory.mounter_record()) {
        tracing::debug!(%error, "the record stays; it names a process that is no more");
    }
    drop(lock);
    Ok(())
}

/// From here on the next driver knows us, so this one may die.
fn introduce(directory: &VolumeDir, mounter: &Mounter, session: i32, generation: u32) -> Result<()> {
    let pid = i32::try_from(std::process::id()).map_err(|error| Error::Bug(error.to_string()))?;
    let start_time = start_time(pid).ok_or_else(|| Error::Bug("/proc shows no start time".to_owned()))?;
    let mountpoint = mounter.mountpoint.clone();
    let record = MounterRecord { pid, start_time, mountpoint, session: Some(session), generation };
    write_record(&directory.mounter_record(), &record)?;
    set_parent_process_death_signal(None).map_err(Error::io("outlive the driver"))
}

fn begin(
    mounter: &Mounter,
    filesystem: Passthrough,
    device: File,
    config: Config,
) -> Result<Session<Passthrough>> {
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions",
        device.as_raw_fd()
    );
    let data = std::ffi::CString::new(data).map_err(|error| Error::Bug(error.to_string()))?;
    let flags = if mounter.readonly { MountFlags::RDONLY } else { MountFlags::empty() };
    mount(
        &mounter.volume,
        "/proc/self/fd/0",
        FUSE_TYPE,
        flags | MountFlags::NODEV | MountFlags::NOSUID,
        Some(&*data),
    )
    .map_err(Error::io(format_args!("mount at {}", mounter.mountpoint.display())))?;
    Session::from_fd(filesystem, device.into(), SessionACL::All, config)
        .map_err(Error::io("start the FUSE session"))
}

/// A predecessor that has nothing left to serve may need a moment to end, so there are several attempts.
fn take(lock: &File) -> Result<(), Errno> {
    let mut taken = flock(lock, FlockOperation::NonBlockingLockExclusive);
    for _ in 0..LOCK_ATTEMPTS {
        if taken != Err(Errno::WOULDBLOCK) {
            break;
        }
        sleep(LOCK_PAUSE);
        taken = flock(lock, FlockOperation::NonBlockingLockExclusive);
    }
    taken
}

/// Standard input pins the directory under the mount, or the session; standard output is a pipe to the driver.
fn release_standard_streams() {
    let null = match File::options().read(true).write(true).open("/dev/null") {
        Ok(null) => null,
        Err(error) => return tracing::warn!(%error, "the standard streams stay open"),
    };
    if let Err(error) = dup2_stdin(&null).and_then(|()| dup2_stdout(&null)) {
        tracing::warn!(%error, "the standard streams stay open");
    }
}

/// One descriptor is held for every file the kernel remembers.
fn many_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit on open files stays low");
    }
}
