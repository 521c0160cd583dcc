//! Which block devices a volume is on, by name, so that what others measure of these devices can be read per volume.

use std::collections::BTreeSet;

use volmedic_host::block::Device;

/// Names that are kept of one volume: more than that is a RAID of a whole rack.
const MOST: usize = 32;

/// Where a block device is below a volume. The device of a file system that is on a whole disk is both, the volume and
/// the disk, and is named for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// The device that the file system is on, or that the raw volume is.
    Volume,
    /// What that is made of: LVM, dm-crypt, RAID, the paths of multipath.
    Between,
    /// What is made of no other device: disks, and not their partitions.
    Disk,
}

/// Each device and its layer, in order.
pub(super) type Devices = Box<[(Layer, String)]>;

impl Layer {
    pub fn name(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::Between => "between",
            Self::Disk => "disk",
        }
    }
}

/// The devices of some stacks, each of which begins with the device of the volume; the volume's own first. They are in
/// order, so that the same devices are the same list.
pub(super) fn of(stacks: &[&[Device]]) -> Devices {
    let mut found = BTreeSet::new();
    for stack in stacks {
        for (place, device) in stack.iter().enumerate() {
            let is_top = place == 0;
            // Controllers of NVMe are paths too, but no block devices.
            let stands_on_others =
                device.paths.iter().any(|path| stack.iter().any(|below| below.name == path.name));
            if is_top {
                found.insert((Layer::Volume, device.name.clone()));
            }
            if !stands_on_others {
                found.insert((Layer::Disk, device.disk.clone()));
            } else if !is_top {
                found.insert((Layer::Between, device.name.clone()));
            }
        }
    }
    found.into_iter().take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use volmedic_host::DeviceNumber;
    use volmedic_host::block::DevicePath;

    use super::*;

    fn device(name: &str, disk: &str, paths: &[&str]) -> Device {
        Device {
            name: name.to_owned(),
            number: DeviceNumber::new(8, 0),
            disk: disk.to_owned(),
            attachments: Vec::new(),
            bytes: 1,
            read_only: false,
            state: None,
            paths: paths.iter().map(|name| DevicePath { name: (*name).to_owned(), state: None }).collect(),
            mapper: None,
            backing: None,
            detaches_when_unused: false,
        }
    }

    fn check(stacks: &[&[Device]], wanted: &str) {
        let found: Vec<String> =
            of(stacks).iter().map(|(layer, name)| format!("{} {name}", layer.name())).collect();
        assert_eq!(found.join(", "), wanted);
    }

    #[test]
    fn each_device_of_a_stack_has_its_layer() {
        check(&[], "");
        check(&[&[device("sdb", "sdb", &[])]], "volume sdb, disk sdb");
        check(&[&[device("sda1", "sda", &[])]], "volume sda1, disk sda");
        let lvm_on_crypt = [
            device("dm-1", "dm-1", &["dm-0"]),
            device("dm-0", "dm-0", &["sda2", "sdb1"]),
            device("sda2", "sda", &[]),
            device("sdb1", "sdb", &[]),
        ];
        check(&[&lvm_on_crypt], "volume dm-1, between dm-0, disk sda, disk sdb");
        let nvme = [device("nvme0n1p1", "nvme0n1", &["nvme0", "nvme1"])];
        check(&[&nvme], "volume nvme0n1p1, disk nvme0n1");
        let (first, second) = ([device("sda", "sda", &[])], [device("sdb", "sdb", &[])]);
        check(&[&first, &second], "volume sda, volume sdb, disk sda, disk sdb");
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let names: Vec<String> = (0..100).map(|number| format!("sd{number:03}")).collect();
        let paths: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut stack = vec![device("md0", "md0", &paths)];
        stack.extend(names.iter().map(|name| device(name, name, &[])));
        let found = of(&[&stack]);
        assert_eq!((found.len(), &found[0]), (MOST, &(Layer::Volume, "md0".to_owned())));
    }
}
