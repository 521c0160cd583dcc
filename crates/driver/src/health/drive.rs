//! The state a driver keeps of its drives and volumes, in the words of csi-baremetal, and what follows from it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use volmedic_health::{Condition, Reason, Status};

/// The text is none of the words of the vocabulary.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is not a valid {what}; it is one of {known}")]
pub struct UnknownWord {
    what: &'static str,
    word: String,
    known: String,
}

/// Makes an enum whose values have one fixed spelling each, for people, files and the wire alike.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal, default $default:ident: $($(#[$meaning:meta])* $value:ident = $word:literal,)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$meaning])* #[serde(rename = $word)] $value,)*
        }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$value,)*];

            pub fn word(self) -> &'static str {
                match self { $(Self::$value => $word,)* }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::$default
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                let found = Self::ALL.iter().copied().find(|known| known.word() == word);
                found.ok_or_else(|| UnknownWord {
                    what: $what,
                    word: word.to_owned(),
                    known: Self::ALL.iter().map(|known| known.word()).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", "),
                })
            }
        }
    };
}

words! {
    /// What is known about the drive under a volume.
    Health, "drive health", default Good:
    Good = "GOOD",
    /// Its replacement is recommended.
    Suspect = "SUSPECT",
    /// Its replacement is required.
    Bad = "BAD",
    /// Not detected; only I/O errors will show it.
    Unknown = "UNKNOWN",
}

words! {
    /// How far the driver got with the volume's last operation.
    CsiStatus, "CSI status", default Created:
    Creating = "CREATING",
    Created = "CREATED",
    VolumeReady = "VOLUME_READY",
    Published = "PUBLISHED",
    Removing = "REMOVING",
    Removed = "REMOVED",
    Failed = "FAILED",
    Resizing = "RESIZING",
    Resized = "RESIZED",
    Empty = "",
}

words! {
    /// Whether the volume can be worked with.
    OperationalStatus, "operational status", default Operative:
    Operative = "OPERATIVE",
    Inoperative = "INOPERATIVE",
    Staging = "STAGING",
    Missing = "MISSING",
    Maintenance = "MAINTENANCE",
    Unknown = "UNKNOWN",
}

words! {
    /// Where the volume or drive is on its way out of service.
    Usage, "usage", default InUse:
    InUse = "IN_USE",
    Releasing = "RELEASING",
    Released = "RELEASED",
    Failed = "FAILED",
    /// Of drives only.
    Removing = "REMOVING",
    /// Of drives only.
    Removed = "REMOVED",
}

words! {
    /// Whether the drive can be reached.
    DriveStatus, "drive status", default Online:
    Online = "ONLINE",
    Offline = "OFFLINE",
}

/// What the driver believes of one volume and the drive under it. The default is a volume in good order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DriveState {
    pub health: Health,
    pub csi_status: CsiStatus,
    pub operational_status: OperationalStatus,
    pub usage: Usage,
    pub drive_status: DriveStatus,
}

impl DriveState {
    /// What is wrong. Each field counts for itself, so that one problem never hides another.
    pub fn conditions(self) -> Vec<Condition> {
        let Self { health, csi_status, operational_status, usage, drive_status } = self;
        let mut found = Vec::new();
        let mut add =
            |status, reason, message: &str| found.push(Condition::new(status, Reason::new(reason), message));
        match health {
            Health::Good => {}
            // That a drive must be replaced does not yet mean that data is lost.
            Health::Bad => {
                add(Status::Inaccessible, "DriveBad", "drive health is BAD: the drive must be replaced");
            }
            Health::Suspect => {
                add(Status::Degraded, "DriveSuspect", "drive health is SUSPECT: plan to replace the drive");
            }
            Health::Unknown => {
                add(
                    Status::Degraded,
                    "HealthUnknown",
                    "drive health is UNKNOWN: only I/O errors would show a failure",
                );
            }
        }
        // A drive that is off line takes its volumes with it; both words mean the same to a user of the volume.
        if operational_status == OperationalStatus::Missing || drive_status == DriveStatus::Offline {
            add(
                Status::Inaccessible,
                "DriveMissing",
                &format!(
                    "the drive is not there: operational status {operational_status}, drive status {drive_status}"
                ),
            );
        }
        if csi_status == CsiStatus::Failed {
            add(
                Status::Inaccessible,
                "VolumeFailed",
                "CSI status is FAILED: the last operation on the volume did not succeed",
            );
        }
        if usage == Usage::Failed {
            add(
                Status::Degraded,
                "ReleaseFailed",
                "usage is FAILED: the volume could not be released from its drive",
            );
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut DriveState), expected: &[&str]) {
        let mut state = DriveState::default();
        change(&mut state);
        let conditions: Vec<String> = state.conditions().iter().map(ToString::to_string).collect();
        assert_eq!(conditions, expected, "{state:?}");
    }

    #[test]
    fn every_rule_of_the_proposal_holds() {
        check(|_| {}, &[]);
        check(|state| state.health = Health::Bad, &["Inaccessible/DriveBad"]);
        check(|state| state.health = Health::Suspect, &["Degraded/DriveSuspect"]);
        check(|state| state.health = Health::Unknown, &["Degraded/HealthUnknown"]);
        check(|state| state.csi_status = CsiStatus::Failed, &["Inaccessible/VolumeFailed"]);
        check(|state| state.operational_status = OperationalStatus::Missing, &["Inaccessible/DriveMissing"]);
        check(|state| state.drive_status = DriveStatus::Offline, &["Inaccessible/DriveMissing"]);
        check(|state| state.usage = Usage::Failed, &["Degraded/ReleaseFailed"]);
    }

    #[test]
    fn nothing_else_is_adverse() {
        for &csi_status in CsiStatus::ALL {
            for &operational_status in OperationalStatus::ALL {
                for &usage in Usage::ALL {
                    let state = DriveState { csi_status, operational_status, usage, ..DriveState::default() };
                    let expected = usize::from(csi_status == CsiStatus::Failed)
                        + usize::from(operational_status == OperationalStatus::Missing)
                        + usize::from(usage == Usage::Failed);
                    assert_eq!(state.conditions().len(), expected, "{state:?}");
                }
            }
        }
    }

    #[test]
    fn one_problem_hides_no_other() {
        let everything = |state: &mut DriveState| {
            *state = DriveState {
                health: Health::Bad,
                csi_status: CsiStatus::Failed,
                operational_status: OperationalStatus::Missing,
                usage: Usage::Failed,
                drive_status: DriveStatus::Offline,
            };
        };
        check(
            everything,
            &[
                "Inaccessible/DriveBad",
                "Inaccessible/DriveMissing",
                "Inaccessible/VolumeFailed",
                "Degraded/ReleaseFailed",
            ],
        );
    }

    #[test]
    fn words_are_read_back_and_others_are_refused_with_the_list() {
        for health in Health::ALL {
            assert_eq!(health.to_string().parse(), Ok(*health));
        }
        assert_eq!("".parse(), Ok(CsiStatus::Empty));
        let error = "FINE".parse::<Health>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"FINE\" is not a valid drive health; it is one of GOOD, SUSPECT, BAD, UNKNOWN"
        );
        assert!("good".parse::<Health>().is_err() && "".parse::<Usage>().is_err());
    }

    #[test]
    fn a_state_is_a_small_json_file_and_what_it_leaves_out_is_good() {
        let state: DriveState = serde_json::from_str(r#"{"health":"BAD"}"#).unwrap();
        assert_eq!(state, DriveState { health: Health::Bad, ..DriveState::default() });
        assert!(
            serde_json::from_str::<DriveState>(r#"{"helth":"BAD"}"#).is_err(),
            "a slip must not read as good"
        );
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<DriveState>(&text).unwrap(), state);
    }
}
