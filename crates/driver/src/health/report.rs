//! The result of a check of a volume.

use std::path::{Path, PathBuf};

use volmedic_health::Condition;
use volmedic_host::usage::Usage;

use super::facts::Place;
use super::fsck::Checked;

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// In the order of the checks.
    pub findings: Vec<Finding>,
    /// How full it is, if it could be asked.
    pub measured: Option<Measured>,
    /// The last file system check, with when it was.
    pub checked: Option<Checked>,
    /// Why part of the check was not possible, through no fault of the volume. Then no findings do not mean health,
    /// and a call that was asked for health must answer with an error instead.
    pub blind: Option<String>,
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub condition: Condition,
    /// Where, if it is wrong in one place and may be right in another.
    pub place: Option<PathBuf>,
}

/// How full a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measured {
    FileSystem(Usage),
    /// A raw device has a size and nothing else.
    Block {
        bytes: u64,
    },
}

impl Finding {
    pub(super) fn anywhere(condition: Condition) -> Self {
        Self { condition, place: None }
    }

    pub(super) fn at(place: &Place, condition: Condition) -> Self {
        Self { condition, place: Some(place.path.clone()) }
    }
}

impl Report {
    /// All conditions of the volume, wherever they are.
    pub fn conditions(&self) -> Vec<Condition> {
        self.findings.iter().map(|finding| finding.condition.clone()).collect()
    }

    /// The conditions that matter to users of the volume at one of these places: those, and what is wrong with
    /// the volume as a whole.
    pub fn conditions_at(&self, places: &[&Path]) -> Vec<Condition> {
        let concerns =
            |finding: &&Finding| finding.place.as_deref().is_none_or(|place| places.contains(&place));
        self.findings.iter().filter(concerns).map(|finding| finding.condition.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use volmedic_health::{Status, WellKnown};

    use super::*;

    #[test]
    fn a_place_hears_of_itself_and_of_the_whole() {
        let finding = |reason: WellKnown, place: Option<&str>| Finding {
            condition: Condition::new(Status::Inaccessible, reason.into(), ""),
            place: place.map(PathBuf::from),
        };
        let findings = vec![
            finding(WellKnown::IOHung, None),
            finding(WellKnown::VolumeUnmounted, Some("/a")),
            finding(WellKnown::WrongMount, Some("/b")),
        ];
        let report = Report { findings, ..Report::default() };
        let reasons = |places: &[&str]| -> Vec<String> {
            let places: Vec<&Path> = places.iter().map(Path::new).collect();
            report.conditions_at(&places).iter().map(|condition| condition.reason.to_string()).collect()
        };
        assert_eq!(reasons(&["/a"]), ["IOHung", "VolumeUnmounted"]);
        assert_eq!(reasons(&["/a", "/b"]), ["IOHung", "VolumeUnmounted", "WrongMount"]);
        assert_eq!(reasons(&[]), ["IOHung"]);
        assert_eq!(report.conditions().len(), 3);
    }
}
