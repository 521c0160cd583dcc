use std::fmt;
use std::sync::Arc;

/// Which claim. Keys of one claim share their text, so that a copy is cheap.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimKey {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl ClaimKey {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "claim {}/{}", self.namespace, self.name)
    }
}
