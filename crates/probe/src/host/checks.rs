//! Which checks there are, what each needs, and which of them are off on this host.

use super::Host;

/// One check, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckState {
    pub name: &'static str,
    /// What it must be given to work.
    pub needs: &'static str,
    /// Why it is off, and what would switch it on. `None`: it is on.
    pub off: Option<String>,
}

const MOUNTS: &str = "the host's mount table: kubelet's directory with HostToContainer propagation, or the host's PID namespace";
const INSIDE: &str =
    "kubelet's directory in sight, and CAP_DAC_READ_SEARCH for volumes that belong to others";
const SYSFS: &str = "the host's /sys, readable";

impl Host {
    /// All checks, in the order in which they are done.
    pub fn checks(&self) -> Vec<CheckState> {
        let on = |name, needs| CheckState { name, needs, off: None };
        let without = |name, needs, off: Option<String>| CheckState { name, needs, off };
        let mounts = self.table().err().map(|error| {
            format!("{error}; run in the host's PID namespace, or leave the choice of the mount table to the default")
        });
        let devices = self.settings.sysfs.join("dev/block");
        let sysfs = std::fs::read_dir(&devices)
            .err()
            .map(|error| format!("reading {} failed: {error}; mount the host's /sys", devices.display()));
        let uncounted = self.uncounted.lock();
        let counters = sysfs.clone().or_else(|| {
            let first = uncounted.values().next()?;
            Some(format!(
                "not for {} volumes: {first} is not found in {}; set agent.privileged, so that links in /dev can be \
                 followed",
                uncounted.len(),
                self.settings.sysfs.join("fs").display()
            ))
        });
        vec![
            without("mounted", MOUNTS, mounts.clone()),
            without("writable", MOUNTS, mounts),
            on("answers", INSIDE),
            on("fullness", INSIDE),
            without("error-counters", SYSFS, counters),
            without("block-device", SYSFS, sysfs.clone()),
            without("stalled-io", SYSFS, sysfs),
            without(
                "fuse-connections",
                "fusectl mounted on the host, and CAP_DAC_OVERRIDE",
                self.connections.as_ref().err().map(ToString::to_string),
            ),
            without(
                "kernel-log",
                "the host's /dev/kmsg and CAP_SYSLOG",
                self.evidence.as_ref().err().map(ToString::to_string),
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::sync::Arc;

    use volmedic_host::helper::{Helpers, Limits};

    use super::super::Settings;
    use super::*;

    fn off(host: &Host) -> Vec<&'static str> {
        host.checks().into_iter().filter(|check| check.off.is_some()).map(|check| check.name).collect()
    }

    #[test]
    fn a_check_that_lacks_something_is_off_by_name_and_says_why() {
        let helpers = Arc::new(Helpers::new(Limits::default()));
        let settings = Settings { sysfs: "/no/such/sys".into(), ..Settings::default() };
        let host = Host::new(Arc::clone(&helpers), settings);
        assert_eq!(
            off(&host),
            ["error-counters", "block-device", "stalled-io", "fuse-connections", "kernel-log"]
        );
        for check in host.checks().into_iter().filter_map(|check| check.off) {
            assert!(check.contains("; "), "it says what to do: {check}");
        }
        let host = Host::new(helpers, Settings::default()).with_evidence(Ok(Arc::new(Mutex::default())));
        assert!(!off(&host).contains(&"kernel-log") && !off(&host).contains(&"block-device"));
    }

    #[test]
    fn a_mount_table_that_cannot_be_read_is_reported() {
        let settings = Settings { mounts_of: Some(u32::MAX), ..Settings::default() };
        let host = Host::new(Arc::new(Helpers::new(Limits::default())), settings);
        assert!(off(&host).contains(&"mounted"));
    }
}
