//! The kubelet's note about a CSI volume: `vol_data.json`.

use std::sync::Arc;

use serde::Deserialize;

/// Notes are a few hundred bytes.
pub(super) const LONGEST_NOTE: usize = 64 * 1024;
/// CSI allows far less for both.
const LONGEST_NAME: usize = 4096;

/// What a note says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolData {
    pub(crate) driver: Arc<str>,
    pub(crate) handle: Arc<str>,
    inline: bool,
}

/// Fields that we do not know are skipped; fields that we know have to be what they should be.
#[derive(Deserialize)]
struct Written {
    #[serde(rename = "driverName")]
    driver: Box<str>,
    #[serde(rename = "volumeHandle")]
    handle: Box<str>,
    /// The name of the PersistentVolume, or of the volume in the pod if it is inline.
    #[serde(default, rename = "specVolID")]
    spec: Option<Box<str>>,
    /// Persistent or Ephemeral.
    #[serde(default, rename = "volumeLifecycleMode")]
    lifecycle: Option<Box<str>>,
}

/// Why a note is of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("it is longer than {LONGEST_NOTE} bytes")]
    Long,
    #[error("it makes no sense: {0}")]
    Nonsense(String),
    #[error("it names no {0}")]
    Empty(&'static str),
    #[error("its {0} is longer than {LONGEST_NAME} bytes")]
    LongName(&'static str),
    #[error("it is about the volume {0:?}")]
    Foreign(Box<str>),
}

impl VolData {
    /// `name` is that of the directory that the note is in.
    pub(crate) fn parse(text: &[u8], name: &str) -> Result<Self, Unreadable> {
        if text.len() > LONGEST_NOTE {
            return Err(Unreadable::Long);
        }
        let Written { driver, handle, spec, lifecycle } =
            serde_json::from_slice(text).map_err(|why| Unreadable::Nonsense(why.to_string()))?;
        for (what, text) in [("driver", &driver), ("handle", &handle)] {
            if text.is_empty() {
                return Err(Unreadable::Empty(what));
            }
            if text.len() > LONGEST_NAME {
                return Err(Unreadable::LongName(what));
            }
        }
        match spec {
            Some(spec) if *spec != *name => Err(Unreadable::Foreign(spec)),
            _ => {
                let inline = lifecycle.as_deref() == Some("Ephemeral");
                Ok(Self { driver: driver.into(), handle: handle.into(), inline })
            }
        }
    }

    /// Whether the pod itself brought the volume.
    pub(crate) fn is_inline(&self) -> bool {
        self.inline
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let shown = match VolData::parse(text.as_bytes(), "pv") {
            Ok(data) => {
                format!("{} {}{}", data.driver, data.handle, if data.is_inline() { " inline" } else { "" })
            }
            Err(why) => why.to_string(),
        };
        assert!(shown.starts_with(expected), "{text}: {shown}");
    }

    #[test]
    fn notes_of_kubelets_old_and_new() {
        check(
            r#"{"driverName":"d","volumeHandle":"h","specVolID":"pv","nodeName":"n","attachmentID":"csi-1"}"#,
            "d h",
        );
        check(
            r#"{"driverName":"d","volumeHandle":"h","specVolID":"pv","volumeLifecycleMode":"Ephemeral","new":[1]}"#,
            "d h inline",
        );
        check(r#"{"driverName":"d","volumeHandle":"h","volumeLifecycleMode":"Persistent"}"#, "d h");
        check(r#"{"driverName":"d","volumeHandle":"a/../b\n"}"#, "d a/../b\n");
    }

    #[test]
    fn notes_that_are_of_no_use() {
        check("", "it makes no sense");
        check("{", "it makes no sense");
        check("[]", "it makes no sense");
        check(r#"{"driverName":"d"}"#, "it makes no sense: missing field `volumeHandle`");
        check(r#"{"driverName":1,"volumeHandle":"h"}"#, "it makes no sense");
        check(r#"{"driverName":"d","volumeHandle":"h","specVolID":7}"#, "it makes no sense");
        check(r#"{"driverName":"d","driverName":"e","volumeHandle":"h"}"#, "it makes no sense");
        check(r#"{"driverName":"d","volumeHandle":"h"} trailing"#, "it makes no sense");
        check(r#"{"driverName":"","volumeHandle":"h"}"#, "it names no driver");
        check(r#"{"driverName":"d","volumeHandle":""}"#, "it names no handle");
        check(
            r#"{"driverName":"d","volumeHandle":"h","specVolID":"other"}"#,
            "it is about the volume \"other\"",
        );
        check(
            &json!({"driverName": "d", "volumeHandle": "h".repeat(5000)}).to_string(),
            "its handle is longer",
        );
        check(&" ".repeat(LONGEST_NOTE + 1), "it is longer");
        // Serde has its own limit of depth.
        check(&format!(r#"{{"x":{}"#, "[".repeat(10_000)), "it makes no sense");
    }

    #[test]
    fn fuzz_vol_data() {
        volmedic_testkit::fuzz("vol-data", |text| match VolData::parse(text, "pv") {
            Ok(data) => {
                for name in [&data.driver, &data.handle] {
                    assert!(!name.is_empty() && name.len() <= LONGEST_NAME);
                }
                true
            }
            Err(why) => {
                assert!(!why.to_string().is_empty());
                false
            }
        });
    }

    proptest! {
        #[test]
        fn whatever_is_in_the_file_is_survived(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = VolData::parse(&text, "pv");
        }

        /// A note cut off anywhere says nothing; a note with one byte changed says nothing or something, but is survived.
        #[test]
        fn damaged_notes_are_survived(handle in ".{1,40}", at in 0_usize..200, byte in any::<u8>()) {
            let note = json!({"driverName": "disk.example.net", "volumeHandle": handle, "specVolID": "pv"}).to_string();
            let whole = VolData::parse(note.as_bytes(), "pv").unwrap();
            prop_assert_eq!(&*whole.handle, &*handle);
            let at = at % note.len();
            prop_assert!(VolData::parse(&note.as_bytes()[..at], "pv").is_err());
            let mut damaged = note.into_bytes();
            damaged[at] = byte;
            if let Ok(data) = VolData::parse(&damaged, "pv") {
                prop_assert!(!data.driver.is_empty() && !data.handle.is_empty());
            }
        }
    }
}
