//! How bad a condition is.

use std::fmt;
use std::str::FromStr;

use crate::UnknownWord;

/// How bad one condition is. Ordered: what is greater is worse.
///
/// A number we do not know ranks below every status we do know, so that it never hides one, and above
/// healthy, so that it is never taken for health.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// A status number of a newer dialect. Shown to people, never written to an API enum.
    Unrecognized(i32),
    /// Usable, but not as it should be.
    Degraded,
    /// Cannot be used: from anywhere when a controller says so, from one node when that node says so.
    Inaccessible,
    /// Data is lost for good, or this is strongly suspected. Consumers may start to restore.
    DataLoss,
}

impl Status {
    /// From `VolumeHealthErrorType` as it is on the wire.
    pub fn from_volume_number(number: i32) -> Self {
        match number {
            1 => Self::Degraded,
            2 => Self::Inaccessible,
            3 => Self::DataLoss,
            other => Self::Unrecognized(other),
        }
    }

    /// From `StorageHealthErrorType` as it is on the wire: a backend is reduced or unreachable, and that is
    /// what its volumes then are.
    pub fn from_storage_number(number: i32) -> Self {
        match number {
            1 => Self::Degraded,
            2 => Self::Inaccessible,
            other => Self::Unrecognized(other),
        }
    }

    /// The value that the Kubernetes API takes, or `None` for a status it has no word for.
    pub fn api_value(self) -> Option<&'static str> {
        match self {
            Self::Unrecognized(_) => None,
            Self::Degraded => Some("Degraded"),
            Self::Inaccessible => Some("Inaccessible"),
            Self::DataLoss => Some("DataLoss"),
        }
    }

    /// Reads an API value back.
    pub fn from_api_value(value: &str) -> Option<Self> {
        match value {
            "Degraded" => Some(Self::Degraded),
            "Inaccessible" => Some(Self::Inaccessible),
            "DataLoss" => Some(Self::DataLoss),
            _ => None,
        }
    }

    /// Reads the status of a condition that others wrote. A word that we do not know is never health.
    pub fn of_word(word: &str) -> Self {
        match word {
            // The words for the storage behind a driver.
            "StorageDegraded" => Self::Degraded,
            "StorageUnreachable" => Self::Inaccessible,
            word => word.parse().unwrap_or(Self::Unrecognized(0)),
        }
    }

    /// The class the first proposals would have used.
    pub fn class(self) -> Class {
        match self {
            Self::Unrecognized(_) => Class::HealthUnknown,
            Self::Degraded => Class::HealthWarning,
            Self::Inaccessible | Self::DataLoss => Class::HealthFailure,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unrecognized(number) => write!(f, "Unrecognized({number})"),
            known => f.write_str(known.api_value().unwrap_or_default()),
        }
    }
}

/// Reads back what `Display` wrote.
impl FromStr for Status {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        let number = || word.strip_prefix("Unrecognized(")?.strip_suffix(')')?.parse().ok();
        let status = Self::from_api_value(word).or_else(|| number().map(Self::Unrecognized));
        status.ok_or_else(|| UnknownWord::new("status", word))
    }
}

/// The three condition types of the first volume-health proposals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The volume cannot be used.
    HealthFailure,
    /// The volume can be used, but something is wrong.
    HealthWarning,
    /// It is unknown.
    HealthUnknown,
}

impl Class {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HealthFailure => "HealthFailure",
            Self::HealthWarning => "HealthWarning",
            Self::HealthUnknown => "HealthUnknown",
        }
    }

    /// The status to assume for a condition that carries only a class. `HealthUnknown` says nothing about
    /// the volume, so it has none.
    pub fn usual_status(self) -> Option<Status> {
        match self {
            Self::HealthFailure => Some(Status::Inaccessible),
            Self::HealthWarning => Some(Status::Degraded),
            Self::HealthUnknown => None,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What can be said of a volume as a whole. Ordered: what is greater is worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Health {
    /// Somebody looked and found nothing wrong.
    Healthy,
    /// Nobody has seen it, or nobody can any more.
    Unknown,
    /// Something is wrong.
    Adverse(Status),
}

impl Health {
    /// The class of the first proposals; a healthy volume has none.
    pub fn class(self) -> Option<Class> {
        match self {
            Self::Healthy => None,
            Self::Unknown => Some(Class::HealthUnknown),
            Self::Adverse(status) => Some(status.class()),
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Healthy => f.write_str("Healthy"),
            Self::Unknown => f.write_str("Unknown"),
            Self::Adverse(status) => status.fmt(f),
        }
    }
}

/// Reads back what `Display` wrote.
impl FromStr for Health {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        match word {
            "Healthy" => Ok(Self::Healthy),
            "Unknown" => Ok(Self::Unknown),
            word => word.parse().map(Self::Adverse).map_err(|_| UnknownWord::new("health", word)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_health_survives_the_round_trip_through_words() {
        for health in [
            Health::Healthy,
            Health::Unknown,
            Health::Adverse(Status::Degraded),
            Health::Adverse(Status::Inaccessible),
            Health::Adverse(Status::DataLoss),
            Health::Adverse(Status::Unrecognized(-7)),
        ] {
            assert_eq!(health.to_string().parse(), Ok(health));
        }
        for word in ["", "healthy", "Unrecognized", "Unrecognized(x)"] {
            assert!(word.parse::<Health>().is_err(), "{word}");
        }
    }

    #[test]
    fn what_others_wrote_is_never_taken_for_health() {
        let read = ["StorageDegraded", "StorageUnreachable", "DataLoss", "Unrecognized(7)", "Haunted", ""];
        let expected = [
            Status::Degraded,
            Status::Inaccessible,
            Status::DataLoss,
            Status::Unrecognized(7),
            Status::Unrecognized(0),
            Status::Unrecognized(0),
        ];
        assert_eq!(read.map(Status::of_word), expected);
    }

    #[test]
    fn worse_is_greater() {
        let order = [
            Health::Healthy,
            Health::Unknown,
            Health::Adverse(Status::Unrecognized(0)),
            Health::Adverse(Status::Unrecognized(9)),
            Health::Adverse(Status::Degraded),
            Health::Adverse(Status::Inaccessible),
            Health::Adverse(Status::DataLoss),
        ];
        assert!(order.is_sorted());
    }

    #[test]
    fn wire_numbers_follow_the_released_proto_not_the_proposal() {
        let volume = [0, 1, 2, 3, 4].map(Status::from_volume_number);
        assert_eq!(
            volume,
            [
                Status::Unrecognized(0),
                Status::Degraded,
                Status::Inaccessible,
                Status::DataLoss,
                Status::Unrecognized(4)
            ]
        );
        let storage = [0, 1, 2, 3].map(Status::from_storage_number);
        assert_eq!(
            storage,
            [Status::Unrecognized(0), Status::Degraded, Status::Inaccessible, Status::Unrecognized(3)]
        );
    }

    #[test]
    fn api_values_survive_the_round_trip_and_unknown_ones_have_none() {
        for status in [Status::Degraded, Status::Inaccessible, Status::DataLoss] {
            assert_eq!(status.api_value().and_then(Status::from_api_value), Some(status));
        }
        assert_eq!(Status::Unrecognized(7).api_value(), None);
        assert_eq!(Status::from_api_value("Unrecognized(7)"), None);
    }

    #[test]
    fn classes_of_the_first_proposals() {
        assert_eq!(Status::DataLoss.class(), Class::HealthFailure);
        assert_eq!(Status::Inaccessible.class(), Class::HealthFailure);
        assert_eq!(Status::Degraded.class(), Class::HealthWarning);
        assert_eq!(Status::Unrecognized(7).class(), Class::HealthUnknown);
        assert_eq!(Health::Unknown.class(), Some(Class::HealthUnknown));
        assert_eq!(Health::Healthy.class(), None);
    }
}
