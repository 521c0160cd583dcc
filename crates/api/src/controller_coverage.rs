//! What a driver's controller says about its probing: an annotation on the Lease by which it is known to run.
//!
//! That a controller runs does not mean that it can see its driver. The annotation is one statement for all volumes of
//! the driver, so that an outage is one write and not one for each claim. It travels with the renewals of the Lease, so
//! that it costs no write of its own. It holds while the Lease is renewed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::resource::limit;

/// The annotation on the controller's Lease. Its value is a [`ControllerCoverage`] as JSON.
pub const CONTROLLER_COVERAGE: &str = "volmedic.dev/coverage";
/// The label on the controller's Lease that says how the driver reports health: the name of a call, or `nothing`.
/// Listing Leases with this label finds the controllers of all drivers.
pub const REPORTS_HEALTH: &str = "volmedic.dev/tells-health";
/// Nothing longer is read.
const LONGEST: usize = 128 * 1024;
/// Handles of volumes that are not probed take no more bytes than this.
const LONGEST_HANDLES: usize = 32 * 1024;

/// Which volumes of its driver a controller probes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerCoverage {
    /// The CSI driver's name.
    pub driver: String,
    /// The call with which volumes are probed, such as `ControllerListVolumeHealth`. Empty if the driver reports nothing
    /// about the health of volumes, or was never reached.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub probed_by: String,
    /// Maximum age in seconds of the last successful probe of a volume that counts as probed.
    pub within_seconds: u32,
    /// Why no volume is probed at all, while that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_probed: Option<Outage>,
    /// Handles of single volumes of which nothing is known although the driver answers: they were not probed yet, or
    /// each probe of them failed. In order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes_not_probed: Vec<String>,
    /// Whether it reports on claims that a node is down on which they are used. The hub then does not report it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reports_nodes: bool,
    /// Volumes of the same kind that found no room. If there are any, none of the driver's volumes is known to be probed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u32,
}

/// Why no volume of a driver is probed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outage {
    /// When probes began to fail.
    pub since: Time,
    /// One CamelCase word: a name of [`volmedic_health::NotProbed`].
    pub reason: String,
    /// The same as a sentence.
    #[serde(default)]
    pub message: String,
}

/// Whether a controller probes one volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probed<'a> {
    Yes,
    /// No volume of the driver, and why.
    None(&'a Outage),
    /// Not this one, or it is not known whether.
    NotThis,
}

/// Why an annotation says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable(String);

impl std::error::Error for Unreadable {}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the annotation {CONTROLLER_COVERAGE} cannot be read: {}", self.0)
    }
}

impl ControllerCoverage {
    /// Reads the annotation's value. Fields that this version does not know are skipped.
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        if text.len() > LONGEST {
            return Err(Unreadable(format!("it is longer than {LONGEST} bytes")));
        }
        let read: Self = serde_json::from_str(text).map_err(|error| Unreadable(error.to_string()))?;
        if read.driver.is_empty() { Err(Unreadable("it names no driver".to_owned())) } else { Ok(read) }
    }

    /// The annotation's value. What is too long is cut, and what is too much is counted.
    pub fn to_annotation(&self) -> String {
        let mut bounded = self.clone();
        if let Some(not_probed) = &mut bounded.not_probed {
            let end = not_probed.message.floor_char_boundary(limit::MESSAGE);
            not_probed.message.truncate(end);
        }
        bounded.volumes_not_probed.sort_unstable();
        let mut bytes = 0;
        let fitting = bounded.volumes_not_probed.iter().take_while(|handle| {
            // As JSON: a control character takes six bytes.
            bytes += serde_json::to_string(handle).map_or(LONGEST_HANDLES, |text| text.len() + 1);
            bytes <= LONGEST_HANDLES
        });
        let fitting = fitting.count();
        let omitted = u32::try_from(bounded.volumes_not_probed.len() - fitting).unwrap_or(u32::MAX);
        bounded.volumes_not_probed.truncate(fitting);
        bounded.omitted = bounded.omitted.saturating_add(omitted);
        serde_json::to_string(&bounded).unwrap_or_default()
    }

    /// Whether the volume with this handle is probed. Call it only while the Lease is renewed.
    pub fn probed(&self, handle: &str) -> Probed<'_> {
        match &self.not_probed {
            Some(not_probed) => Probed::None(not_probed),
            None if self.probed_by.is_empty() || self.omitted > 0 => Probed::NotThis,
            None if self.volumes_not_probed.iter().any(|other| other == handle) => Probed::NotThis,
            None => Probed::Yes,
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn well() -> ControllerCoverage {
        ControllerCoverage {
            driver: "disk.example.net".to_owned(),
            probed_by: "ControllerListVolumeHealth".to_owned(),
            within_seconds: 195,
            ..ControllerCoverage::default()
        }
    }

    fn unreachable() -> Outage {
        Outage {
            since: Time("2026-03-01T10:00:00Z".parse().unwrap()),
            reason: "DriverUnreachable".to_owned(),
            message: "connection refused".to_owned(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(
            well().to_annotation(),
            r#"{"driver":"disk.example.net","probedBy":"ControllerListVolumeHealth","withinSeconds":195}"#
        );
        let lost = ControllerCoverage { not_probed: Some(unreachable()), ..well() };
        let some = ControllerCoverage { volumes_not_probed: vec!["a".to_owned(), "b".to_owned()], ..well() };
        for each in [well(), lost, some] {
            assert_eq!(ControllerCoverage::parse(&each.to_annotation()), Ok(each));
        }
        let newer = r#"{"driver":"d","withinSeconds":1,"new":{"x":[]}}"#;
        assert_eq!(ControllerCoverage::parse(newer).map(|read| read.driver), Ok("d".to_owned()));
    }

    #[test]
    fn what_says_nothing_is_an_error_with_a_sentence() {
        for text in ["", "{}", "[]", r#"{"driver":"","withinSeconds":1}"#, &" ".repeat(LONGEST + 1)] {
            let error = ControllerCoverage::parse(text).unwrap_err().to_string();
            assert!(error.starts_with("the annotation volmedic.dev/coverage cannot be read: "), "{error}");
        }
    }

    #[test]
    fn a_volume_is_probed_only_if_nothing_speaks_against_it() {
        assert_eq!(well().probed("a"), Probed::Yes);
        let lost = ControllerCoverage { not_probed: Some(unreachable()), ..well() };
        assert_eq!(lost.probed("a"), Probed::None(&unreachable()));
        let some = ControllerCoverage { volumes_not_probed: vec!["a".to_owned()], ..well() };
        assert_eq!((some.probed("a"), some.probed("b")), (Probed::NotThis, Probed::Yes));
        let many = ControllerCoverage { omitted: 1, ..some };
        assert_eq!(many.probed("b"), Probed::NotThis, "it may be the one that found no room");
        let never = ControllerCoverage { probed_by: String::new(), ..well() };
        assert_eq!(never.probed("a"), Probed::NotThis);
    }

    #[test]
    fn however_many_volumes_are_not_probed_it_stays_small() {
        let handles: Vec<String> = (0..100_000).map(|n| format!("\u{1}vol-{n:06}")).rev().collect();
        let not_probed = Outage { message: "ü".repeat(5_000), ..unreachable() };
        let coverage =
            ControllerCoverage { volumes_not_probed: handles, not_probed: Some(not_probed), ..well() };
        let text = coverage.to_annotation();
        assert!(text.len() < LONGEST_HANDLES + 4 * 1024, "{} bytes", text.len());
        let read = ControllerCoverage::parse(&text).unwrap();
        assert_eq!(read.volumes_not_probed.len() + read.omitted as usize, 100_000);
        assert_eq!(read.volumes_not_probed[0], "\u{1}vol-000000", "always the same ones are kept");
    }
}
