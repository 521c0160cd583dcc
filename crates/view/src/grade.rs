//! Health in the six words that people filter and count by.

use std::fmt;

use volmedic_health::{Health, Status};

/// Health without its details. In the order of [`Grade::ALL`], worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grade {
    DataLoss,
    Inaccessible,
    Degraded,
    /// The driver reported a status that we do not know.
    Unrecognized,
    /// No vantage has seen it, or none can any more.
    Unknown,
    Healthy,
}

impl Grade {
    pub const ALL: [Self; 6] = [
        Self::DataLoss,
        Self::Inaccessible,
        Self::Degraded,
        Self::Unrecognized,
        Self::Unknown,
        Self::Healthy,
    ];

    pub fn of(health: Health) -> Self {
        match health {
            Health::Healthy => Self::Healthy,
            Health::Unknown => Self::Unknown,
            Health::Adverse(Status::DataLoss) => Self::DataLoss,
            Health::Adverse(Status::Inaccessible) => Self::Inaccessible,
            Health::Adverse(Status::Degraded) => Self::Degraded,
            Health::Adverse(Status::Unrecognized(_)) => Self::Unrecognized,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::DataLoss => "DataLoss",
            Self::Inaccessible => "Inaccessible",
            Self::Degraded => "Degraded",
            Self::Unrecognized => "Unrecognized",
            Self::Unknown => "Unknown",
            Self::Healthy => "Healthy",
        }
    }

    /// For people, where there is room for two words.
    pub fn label(self) -> &'static str {
        if self == Self::DataLoss { "Data loss" } else { self.name() }
    }

    /// In lower case, as in a class of a style sheet.
    pub fn slug(self) -> &'static str {
        match self {
            Self::DataLoss => "dataloss",
            Self::Inaccessible => "inaccessible",
            Self::Degraded => "degraded",
            Self::Unrecognized => "unrecognized",
            Self::Unknown => "unknown",
            Self::Healthy => "healthy",
        }
    }

    /// A sign of its own shape for each, so that no reader has to distinguish colours.
    pub fn sign(self) -> &'static str {
        match self {
            Self::DataLoss => "✖",
            Self::Inaccessible => "■",
            Self::Degraded => "▲",
            Self::Unrecognized => "◆",
            Self::Unknown => "?",
            Self::Healthy => "●",
        }
    }

    pub fn is_adverse(self) -> bool {
        !matches!(self, Self::Healthy | Self::Unknown)
    }

    /// From [`name`](Self::name), in any case.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|grade| grade.name().eq_ignore_ascii_case(text))
    }
}

impl fmt::Display for Grade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How many volumes have each grade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts([usize; Grade::ALL.len()]);

impl Counts {
    pub fn add(&mut self, grade: Grade) {
        self.0[grade as usize] += 1;
    }

    pub fn get(&self, grade: Grade) -> usize {
        self.0[grade as usize]
    }

    pub fn total(&self) -> usize {
        self.0.iter().sum()
    }

    /// The worst grade that any has.
    pub fn worst(&self) -> Option<Grade> {
        Grade::ALL.into_iter().find(|grade| self.get(*grade) > 0)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Grade, usize)> {
        Grade::ALL.into_iter().map(|grade| (grade, self.get(grade)))
    }
}

impl FromIterator<Grade> for Counts {
    fn from_iter<I: IntoIterator<Item = Grade>>(grades: I) -> Self {
        let mut counts = Self::default();
        for grade in grades {
            counts.add(grade);
        }
        counts
    }
}

/// As in `2 inaccessible, 1 degraded, 97 healthy`.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (grade, count) in self.iter().filter(|(_, count)| *count > 0) {
            let comma = if std::mem::take(&mut first) { "" } else { ", " };
            write!(f, "{comma}{count} {}", grade.label().to_lowercase())?;
        }
        if first { f.write_str("no volumes") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grades_are_in_the_order_of_health_and_found_by_name() {
        let worst_first = [
            Health::Adverse(Status::DataLoss),
            Health::Adverse(Status::Inaccessible),
            Health::Adverse(Status::Degraded),
            Health::Adverse(Status::Unrecognized(4)),
            Health::Unknown,
            Health::Healthy,
        ];
        assert_eq!(worst_first.map(Grade::of), Grade::ALL);
        assert!(worst_first.iter().rev().is_sorted());
        for grade in Grade::ALL {
            assert_eq!(Grade::parse(&grade.name().to_uppercase()), Some(grade));
        }
        assert_eq!(Grade::parse("fine"), None);
    }

    #[test]
    fn counts_as_a_person_says_them() {
        assert_eq!(Counts::default().to_string(), "no volumes");
        let counts: Counts =
            [Grade::Healthy, Grade::DataLoss, Grade::Healthy, Grade::Unknown].into_iter().collect();
        assert_eq!(counts.to_string(), "1 data loss, 1 unknown, 2 healthy");
        assert_eq!((counts.worst(), counts.total()), (Some(Grade::DataLoss), 4));
    }
}
