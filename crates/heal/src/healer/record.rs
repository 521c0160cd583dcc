//! What happened, as data: for events on the claim and the pods, for the log, for the history of a volume.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use volmedic_api::ObjectRef;
use volmedic_health::{Reason, Remedy, sanitize_message};

use crate::mode::Ruling;
use crate::place::Place;
use crate::refusal::Refusal;
use crate::table::After;
use crate::triage::Brake;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The driver is being asked, or pods are being evicted.
    Started {
        nth: u32,
    },
    /// The driver says that the volume is healthy, or it is healthy under new pods.
    Succeeded {
        message: String,
        took: Duration,
    },
    /// It is not, or the driver did not say so, or was not even asked.
    Failed {
        message: String,
        /// The outcome's label.
        code: &'static str,
        after: After,
        took: Duration,
        asked: bool,
    },
    Skipped(Refusal),
    /// Too many are unhealthy at the same time. About no volume in particular.
    Braked(Brake),
    Released(Brake),
}

impl News {
    /// The reason of the event.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Started { .. } => "HealingStarted",
            Self::Succeeded { .. } => "HealingSucceeded",
            Self::Failed { .. } => "HealingFailed",
            Self::Skipped(_) => "HealingSkipped",
            Self::Braked(_) => "HealingBraked",
            Self::Released(_) => "HealingReleased",
        }
    }

    pub fn is_warning(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Braked(_) | Self::Skipped(Refusal::GaveUp { .. }))
    }
}

/// One try, distinguished from all others of the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    pub nth: u32,
    pub began: Timestamp,
}

/// News, and whom they concern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub at: Timestamp,
    /// `None` for what concerns many volumes.
    pub place: Option<Place>,
    pub pv: Box<str>,
    /// The claim and the pods to report it on. May be empty.
    pub about: Vec<ObjectRef>,
    /// What was reported about the volume, since when. The same for all news of one episode, also after a restart.
    pub complaint: Option<(Reason, Timestamp)>,
    pub by_person: bool,
    /// What is done, or refused; `None` if it is about no remedy.
    pub remedy: Option<Remedy>,
    /// The rule that allows it.
    pub rule: Option<Ruling>,
    /// The try that it is about; `None` for what was none.
    pub attempt: Option<Attempt>,
    /// It is not tried again before this time.
    pub not_before: Option<Timestamp>,
    pub news: News,
}

impl Record {
    /// The sentence for people: bounded, one line.
    pub fn text(&self) -> String {
        sanitize_message(&self.to_string()).into_owned()
    }

    /// Whether people are informed by an event. What was merely checked and found healthy is in the log only.
    pub fn is_event(&self) -> bool {
        match &self.news {
            // A relay that is out of reach says nothing about a volume that nobody complained about.
            News::Started { .. } | News::Succeeded { .. } | News::Failed { asked: false, .. } => {
                self.complaint.is_some() || self.by_person
            }
            News::Failed { asked: true, .. } | News::Skipped(_) => true,
            News::Braked(_) | News::Released(_) => false,
        }
    }

    /// One line in the log for each.
    pub(crate) fn log(&self) {
        let Self {
            at: _,
            place,
            pv,
            about: _,
            complaint,
            by_person,
            remedy,
            rule: _,
            attempt: _,
            not_before: _,
            news,
        } = self;
        let remedy = remedy.map(Remedy::name);
        let (driver, handle, node) = match place {
            Some(Place { driver, handle, node }) => (Some(&**driver), Some(&**handle), Some(&**node)),
            None => (None, None, None),
        };
        let reason = complaint.as_ref().map(|(reason, _)| reason.as_str());
        let kind = news.reason();
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    target: "volmedic::heal",
                    kind, driver, handle, node, pv = &**pv, reason, remedy, by_person,
                    "{self}"
                )
            };
        }
        if news.is_warning() { line!(warn) } else { line!(info) }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |f: &mut fmt::Formatter<'_>| match &self.place {
            Some(place) => place.fmt(f),
            None => f.write_str("the cluster"),
        };
        match &self.news {
            News::Started { nth } => {
                f.write_str("Healing of ")?;
                place(f)?;
                f.write_str(" began")?;
                if let Some((reason, since)) = &self.complaint {
                    write!(f, " because of {reason} since {since:.0}")?;
                }
                if self.by_person {
                    f.write_str(" because a person asked for it")?;
                }
                match self.remedy {
                    Some(Remedy::RecreatePods) => write!(
                        f,
                        " (attempt {nth}): the pods that use it there are evicted one by one, so that it is mounted again"
                    )?,
                    _ => write!(f, " (try {nth}): the node plugin is asked to heal it")?,
                }
                match &self.rule {
                    Some(Ruling { mode, source }) => {
                        write!(f, "; {} is {mode} {source}", self.remedy.map_or("healing", Remedy::name))
                    }
                    None => Ok(()),
                }
            }
            News::Succeeded { message, took } => {
                f.write_str("Healing of ")?;
                place(f)?;
                let result = match self.remedy {
                    Some(Remedy::RecreatePods) => "it was mounted again and is healthy",
                    _ => "the node plugin says that it is healthy",
                };
                write!(f, " succeeded after {:.1} s: {result}", took.as_secs_f64())?;
                said(f, message)
            }
            News::Failed { message, code: _, after, took, asked: _ } => {
                f.write_str("Healing of ")?;
                place(f)?;
                write!(f, " failed after {:.1} s", took.as_secs_f64())?;
                said(f, message)?;
                write!(f, "; {after}")
            }
            News::Skipped(refusal) => {
                f.write_str("Healing of ")?;
                place(f)?;
                write!(f, " was skipped: {refusal}")
            }
            News::Braked(brake) => write!(f, "Healing stops: {brake}"),
            News::Released(Brake { scope, unhealthy, of }) => {
                write!(f, "Healing goes on: {unhealthy} of {of} volumes ")?;
                match scope {
                    Some(driver) => write!(f, "of {driver} ")?,
                    None => f.write_str("in the cluster ")?,
                }
                f.write_str("are unhealthy")
            }
        }
    }
}

fn said(f: &mut fmt::Formatter<'_>, message: &str) -> fmt::Result {
    if message.is_empty() { Ok(()) } else { write!(f, " ({message})") }
}
