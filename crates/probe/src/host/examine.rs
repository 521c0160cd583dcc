//! One look: gather the facts, let each check judge them, and put together what they say.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use volmedic_health::{NotProbed, Sight, WhyKind};
use volmedic_host::DeviceNumber;
use volmedic_host::block::{Device, IoCounts, Sysfs};
use volmedic_host::fs_state::BtrfsErrors;
use volmedic_host::mounts::{Mount, Table};

use super::ask::{Measured, key};
use super::counters::{self, Counted};
use super::device::Image;
use super::evidence::Heard;
use super::expected::{Expected, Mode};
use super::findings::{Check, Finding, Verdict, conditions};
use super::memory::{Errors, Memory};
use super::mounted;
use super::witness::Facts;
use super::{Host, Looked, device, devices, evidence, fullness, stalled, text, writable};
use crate::Usage;

/// The block device under a volume and all that it stands on, itself first.
struct Under {
    name: String,
    number: Option<DeviceNumber>,
    stack: Vec<Device>,
}

/// What was found of a volume by the time its device is checked.
pub(super) struct Examined<'a> {
    pub(super) expected: &'a Expected,
    /// Where it shows.
    pub(super) shown: Option<Mount<'a>>,
    /// The block device that a raw volume is.
    pub(super) device: Option<DeviceNumber>,
    pub(super) now: Instant,
    /// Something has to be seen again before it counts.
    pub(super) waits: bool,
}

impl Host {
    pub(super) fn examine(&self, expected: &Expected, table: &Table, memory: &mut Memory) -> Looked {
        if expected.mode == Mode::Directory {
            return self.examine_directory(expected, table, memory);
        }
        let mounted = mounted::check(expected, table, &mut memory.baseline);
        let asked = self.ask(expected, &mounted, memory);
        let now = Instant::now();
        let mut suspicions = mounted.suspicions.clone();
        suspicions.extend(asked.suspicions);
        let (reported, again) = memory.confirm(suspicions, now, self.settings.confirm);

        let waits = again.is_some();
        let nowhere = mounted.good.is_empty() && mounted.staging.is_none();
        let blind = asked.blind.or_else(|| {
            let why = "what the mount table says is being confirmed".to_owned();
            (nowhere && reported.is_empty()).then_some((NotProbed::NotProbedYet, why))
        });
        // Where there is nothing to ask, what the last answer was is overtaken.
        let answers = if nowhere && !waits { Verdict::fine() } else { asked.answers };
        memory.record(Check::Mounted, Verdict::Seen(reported));
        memory.record(Check::Answers, answers);
        // Also when it is nowhere for sure: what was wrong with its mounts went with them.
        if expected.mode == Mode::Filesystem && (!mounted.good.is_empty() || !waits) {
            let found = mounted.good.iter().filter_map(|(target, mount)| writable::check(target, (*mount)?));
            memory.record(Check::Writable, Verdict::Seen(found.collect()));
        }
        if let Some(Measured::FileSystem(usage)) = asked.measured {
            let found = fullness::check(self.settings.thresholds, usage, &mut memory.baseline.full);
            memory.record(Check::Fullness, Verdict::Seen(found));
        }
        let shown = mounted.good.iter().find_map(|(_, mount)| *mount).or(mounted.staging);
        let examined = Examined { expected, shown, device: asked.device, now, waits };
        let reported = self.examine_below(&examined, memory);

        let sight = match &blind {
            Some((_, why)) if reported.is_empty() => Sight::not_seen(WhyKind::NoAnswer, why),
            _ => Sight::adverse(conditions(&reported)),
        };
        let usage = asked.measured.map(|measured| match measured {
            Measured::FileSystem(usage) => Usage::from(usage),
            Measured::Device(bytes) => Usage::of_device(bytes),
        });
        Looked { sight, usage, again, unprobed: asked.limited.or(blind) }
    }

    /// What is below the file system, and all that is wrong by now.
    pub(super) fn examine_below(&self, examined: &Examined<'_>, memory: &mut Memory) -> Vec<Finding> {
        let &Examined { expected, shown, device, now, waits } = examined;
        let under = self.under(expected.mode, shown, device);
        let (io, counted) = self.judge_device(expected, under.as_ref(), shown, memory, now);
        memory.note_others(now);
        let reported = self.with_the_kernels_words(under.as_ref(), shown, memory, now);
        let (name, stack) = under.as_ref().map_or(("", &[][..]), |under| (&under.name, &under.stack));
        let counted = counted.map(|counted| (name, counted));
        if !waits {
            memory.call_witness(&reported, &Facts { mount: shown, stack, io, counted });
            self.note_witness(expected, &memory.baseline.witness);
        }
        reported
    }

    /// `None` when no block device is under it, or sysfs does not tell.
    fn under(&self, mode: Mode, mount: Option<Mount<'_>>, device: Option<DeviceNumber>) -> Option<Under> {
        let named = |name: &str| -> Option<Under> {
            let device = self.sysfs.device_named(name).ok()?;
            let stack = match &device {
                Some(device) => self.sysfs.stack(device.number).ok()?,
                None => Vec::new(),
            };
            Some(Under { name: text::name(name), number: device.map(|device| device.number), stack })
        };
        let numbered = |number: DeviceNumber| -> Option<Under> {
            let stack = self.sysfs.stack(number).ok()?;
            let name = stack.first().map_or_else(|| number.to_string(), |device| text::name(&device.name));
            Some(Under { name, number: Some(number), stack })
        };
        // Where no device can be seen at all, none is missing.
        if !self.settings.sysfs.join("dev/block").is_dir() {
            return None;
        }
        if let Some(number) = device {
            return numbered(number);
        }
        let mount = mount?;
        match node_name(&self.sysfs, mode, mount) {
            Some(name) => named(&name),
            None if mount.device().is_anonymous() => None,
            None => numbered(mount.device()),
        }
    }

    /// Answers what was counted.
    fn judge_device(
        &self,
        expected: &Expected,
        under: Option<&Under>,
        mount: Option<Mount<'_>>,
        memory: &mut Memory,
        now: Instant,
    ) -> (Option<IoCounts>, Option<Errors>) {
        let fs_type = mount.map_or(&b""[..], |mount| mount.fs_type().as_bytes());
        let Some(Under { name, number, stack }) = under else {
            // Nothing under it that could be judged, now at least.
            self.note_uncounted(expected, mount.filter(|_| fs_type == b"btrfs"));
            self.note_devices(expected, Box::default());
            return (None, None);
        };
        let counted = match fs_type {
            b"ext4" | b"ext3" | b"ext2" => self.sysfs.ext4_errors(name).ok().flatten().map(Counted::Ext4),
            b"btrfs" => self.sysfs.btrfs_errors(name).ok().flatten().map(Counted::Btrfs),
            _ => None,
        };
        let is_counted = counted.is_some() || stack.is_empty();
        self.note_uncounted(expected, mount.filter(|_| fs_type == b"btrfs" && !is_counted));
        let writes = expected.targets.iter().any(|target| !target.read_only);
        let found = match &counted {
            Some(Counted::Btrfs(errors)) if errors.members.len() > 1 => self.members(name, errors, writes),
            _ => {
                let image = self.image(expected, stack);
                device::check(name, stack, image, writes, &mut memory.baseline.device)
            }
        };
        memory.record(Check::Device, Verdict::Seen(found));
        // A device that is gone has no stack any more. Which one it was is then what people want to know.
        if !stack.is_empty() {
            let others = match &counted {
                Some(Counted::Btrfs(errors)) => self.other_members(stack, errors),
                _ => Vec::new(),
            };
            let stacks: Vec<&[Device]> =
                [&stack[..]].into_iter().chain(others.iter().map(|other| &other[..])).collect();
            self.note_devices(expected, devices::of(&stacks));
        }

        let counts = number.and_then(|number| self.sysfs.io_counts(number).ok().flatten());
        let found = stalled::check(name, counts, device::pause(stack), memory, now, self.settings.stalled);
        memory.record(Check::Stalled, found.into());

        if let Some(counted) = &counted {
            let found = counters::check(name, counted, &mut memory.baseline.errors);
            memory.record(Check::Counters, Verdict::Seen(found));
        }
        (counts, counted.as_ref().map(Counted::errors))
    }

    /// Each device of a file system that has several. Losing some of them need not lose the volume: whether it can still
    /// be used is for its answers to say.
    fn members(&self, name: &str, errors: &BtrfsErrors, writes: bool) -> Vec<Finding> {
        let mut found = Vec::new();
        for member in &errors.members {
            let Ok(device) = self.sysfs.device_named(member) else { continue };
            let stack = device.map_or(Ok(Vec::new()), |device| self.sysfs.stack(device.number));
            let of_member = |stack: Vec<Device>| {
                device::check(&text::name(member), &stack, Image::Unknown, writes, &mut None)
            };
            found.extend(stack.map(of_member).unwrap_or_default().into_iter().map(|finding| {
                let message = format!("{} (a device of the btrfs on {name})", finding.message);
                Finding::degraded(finding.reason, message)
            }));
        }
        found
    }

    /// The stacks of a file system's other devices, where it has several.
    fn other_members(&self, stack: &[Device], errors: &BtrfsErrors) -> Vec<Vec<Device>> {
        let others = errors.members.iter().filter(|name| stack.iter().all(|device| device.name != **name));
        let stacks = others.filter_map(|name| {
            let device = self.sysfs.device_named(name).ok()??;
            self.sysfs.stack(device.number).ok()
        });
        stacks.collect()
    }

    /// The file may be on a disk or a server that hangs, so it is a helper's to ask for.
    fn image(&self, expected: &Expected, stack: &[Device]) -> Image {
        let Some(backing) = stack.first().and_then(|device| device.backing.as_ref()) else {
            return Image::Unknown;
        };
        let bytes = self.helpers.file_size(&key(expected), &backing.file, self.settings.deadline);
        bytes.map_or(Image::Unknown, Image::Bytes)
    }

    /// What the kernel said when the trouble began stays beside it until the trouble is over.
    fn with_the_kernels_words(
        &self,
        under: Option<&Under>,
        mount: Option<Mount<'_>>,
        memory: &mut Memory,
        now: Instant,
    ) -> Vec<Finding> {
        let mut reported: Vec<Finding> = memory.findings().cloned().collect();
        let is_explained = reported.iter().any(|found| evidence::is_explained_by_the_kernel(found.reason));
        if let Ok(log) = &self.evidence {
            let devices = under.map_or(&[][..], |under| &under.stack);
            let source = mount.map(|mount| mount.source().to_string_lossy());
            let lines = evidence::lines(&log.lock(), devices, source.as_deref().and_then(server));
            let device = under.map_or("", |under| &under.name);
            let known = memory.heard.take().filter(|heard| heard.is_of(device));
            let heard = memory.heard.insert(known.unwrap_or_else(|| Heard::new(device, &lines, now)));
            if !is_explained {
                heard.all_is_healthy(&lines, now);
            } else if memory.baseline.kernel_said.is_none() {
                memory.baseline.kernel_said = heard.explanation(&lines);
            }
        }
        if !is_explained {
            memory.baseline.kernel_said = None;
        }
        if let Some(said) = &memory.baseline.kernel_said {
            for found in &mut reported {
                evidence::add(found, said);
            }
        }
        reported
    }
}

/// The kernel's name of the device under a mount, where the mount's own number is not the device's.
pub(super) fn node_name(sysfs: &Sysfs, mode: Mode, mount: Mount<'_>) -> Option<String> {
    match (mode, mount.fs_type().as_bytes()) {
        // A node bound onto a file: the mount is of /dev, its root is the node.
        (Mode::Block, b"devtmpfs" | b"tmpfs") => Some(mount.root().file_name()?.to_str()?.to_owned()),
        // btrfs has a number of its own and only names its device.
        (Mode::Filesystem | Mode::Directory, b"btrfs") => {
            sysfs.name_of_node(Path::new(mount.source())).ok()?
        }
        _ => None,
    }
}

/// `server:/export` or `//server/share`.
fn server(source: &str) -> Option<&str> {
    match source.strip_prefix("//") {
        Some(rest) => rest.split('/').next(),
        None => source.split_once(":/").map(|(server, _)| server),
    }
    .filter(|server| !server.is_empty())
}
