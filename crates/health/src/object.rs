//! The Kubernetes objects that reports go to, by name only: no client and no shape of theirs.

use std::fmt;

/// The kinds of object that reports go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    PersistentVolumeClaim,
    Pod,
    Node,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::Pod => "Pod",
            Self::Node => "Node",
        }
    }
}

/// One object, by its uid: a claim that is re-created under the same name is another object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    pub kind: Kind,
    /// Empty for objects that have none.
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
}

impl ObjectRef {
    pub fn new(kind: Kind, namespace: &str, name: &str, uid: &str) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into(), uid: uid.into() }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::PersistentVolumeClaim => "claim",
            Kind::Pod => "pod",
            Kind::Node => "node",
        };
        if self.namespace.is_empty() {
            write!(f, "{kind} {}", self.name)
        } else {
            write!(f, "{kind} {}/{}", self.namespace, self.name)
        }
    }
}
