//! One PersistentVolume in as few bytes as it takes.

use std::borrow::Cow;

use crate::uid::Uid;

/// Names of objects never contain it, so it parts them.
const PART: char = '/';
/// How provisioners name a volume: this and the uid of its claim.
const PROVISIONED: &str = "pvc-";

/// The claim of a bound PersistentVolume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: Cow<'a, str>,
    /// The name of the PersistentVolume.
    pub(crate) volume: Cow<'a, str>,
}

/// The name of a PersistentVolume and, if it is bound, its claim.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    /// `claim`, `claim/volume` or `claim/volume/uid`: what follows from the rest is left out.
    names: Box<str>,
    uid: Uid,
    /// The number that the table has for the claim's namespace.
    pub(super) namespace: u32,
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Not bound: no claim, only `/volume`.
    Unbound,
    /// The volume is named after the claim's uid.
    Provisioned,
    /// The volume has a name of its own.
    Named,
    /// So it has, and the claim's uid is no UUID.
    Odd,
}

/// A name that no object can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the name {0:?} contains a slash")]
pub(crate) struct NoName(String);

impl Packed {
    pub(crate) fn unbound(volume: &str) -> Result<Self, NoName> {
        Ok(Self::new(format!("{PART}{}", whole(volume)?), Uid::default(), Form::Unbound))
    }

    pub(crate) fn bound(volume: &str, claim: &str, uid: &str) -> Result<Self, NoName> {
        let (volume, claim) = (whole(volume)?, whole(claim)?);
        Ok(match Uid::parse(uid) {
            Some(id) if volume.strip_prefix(PROVISIONED) == Some(uid) => {
                Self::new(claim.to_owned(), id, Form::Provisioned)
            }
            Some(id) => Self::new(format!("{claim}{PART}{volume}"), id, Form::Named),
            None => Self::new(format!("{claim}{PART}{volume}{PART}{uid}"), Uid::default(), Form::Odd),
        })
    }

    fn new(names: String, uid: Uid, form: Form) -> Self {
        Self { names: names.into(), uid, namespace: 0, form }
    }

    pub(crate) fn is_bound(&self) -> bool {
        self.form != Form::Unbound
    }

    pub(crate) fn claim<'a>(&'a self, namespace: &'a str) -> Option<Claim<'a>> {
        let uid = match self.form {
            Form::Unbound => return None,
            Form::Provisioned | Form::Named => self.uid.to_string().into(),
            Form::Odd => self.part(2).into(),
        };
        Some(Claim { namespace, name: self.part(0), uid, volume: self.volume() })
    }

    /// The name of the PersistentVolume.
    pub(crate) fn volume(&self) -> Cow<'_, str> {
        match self.form {
            Form::Provisioned => format!("{PROVISIONED}{}", self.uid).into(),
            Form::Unbound | Form::Named | Form::Odd => self.part(1).into(),
        }
    }

    pub(crate) fn volume_is(&self, name: &str) -> bool {
        match self.form {
            Form::Provisioned => name.strip_prefix(PROVISIONED).and_then(Uid::parse) == Some(self.uid),
            Form::Unbound | Form::Named | Form::Odd => self.part(1) == name,
        }
    }

    /// Whether both are about the same PersistentVolume.
    pub(crate) fn same_volume(&self, other: &Self) -> bool {
        self.volume_is(&other.volume())
    }

    /// A uid may hold anything, so it is the last part and never split.
    fn part(&self, index: usize) -> &str {
        self.names.splitn(3, PART).nth(index).unwrap_or_default()
    }
}

fn whole(name: &str) -> Result<&str, NoName> {
    if name.contains(PART) { Err(NoName(name.to_owned())) } else { Ok(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "6f1c9a54-7b3e-4d2c-8a1f-0123456789ab";

    #[track_caller]
    fn check(volume: &str, claim: &str, uid: &str, form: Form, names: &str) {
        let packed = Packed::bound(volume, claim, uid).unwrap();
        assert_eq!((packed.form, &*packed.names), (form, names));
        let expected = Claim { namespace: "ns", name: claim, uid: uid.into(), volume: volume.into() };
        assert_eq!(packed.claim("ns").unwrap(), expected);
        assert!(packed.volume_is(volume));
        assert!(!packed.volume_is("another"));
        assert!(packed.same_volume(&Packed::unbound(volume).unwrap()));
        assert!(Packed::unbound(volume).unwrap().same_volume(&packed));
    }

    #[test]
    fn what_is_packed_is_unpacked_the_same() {
        check(&format!("pvc-{UID}"), "data", UID, Form::Provisioned, "data");
        check("static", "data", UID, Form::Named, "data/static");
        check("pvc-6f1c9a54", "data", UID, Form::Named, "data/pvc-6f1c9a54");
        check("static", "data", "a/b/c", Form::Odd, "data/static/a/b/c");
        check("pvc-a", "data", "a", Form::Odd, "data/pvc-a/a");
    }

    #[test]
    fn an_unbound_volume_has_no_claim() {
        let packed = Packed::unbound("static").unwrap();
        assert_eq!((packed.claim("ns"), packed.is_bound(), &*packed.volume()), (None, false, "static"));
    }

    #[test]
    fn names_with_a_slash_are_refused() {
        assert!(Packed::unbound("a/b").is_err());
        assert!(Packed::bound("a", "b/c", UID).is_err());
        assert!(Packed::bound("a/b", "c", UID).is_err());
    }
}
