//! Which directory of the kubelet is which volume of a pod. Pure.
//!
//! The kubelet names the directory of a claim's volume after its PersistentVolume, and a pod knows only the claim. The
//! PersistentVolume says whose it is. Where it cannot be read, what remains may still be unambiguous.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use volmedic_api::{Kind, ObjectRef};

use super::kubelet::{CSI, Found, HOST_PATH, Layout, NoComponent, Staging, VolData};
use super::pv::Facts;
use super::record::{Record, Source, Wanted};
use super::volume::{Access, Key, Mode, Phase, Use};

/// One volume of one pod, placed.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) key: Key,
    pub(super) mode: Mode,
    pub(super) staging: Option<PathBuf>,
    pub(super) source: Option<PathBuf>,
    pub(super) fs_type: Option<Box<str>>,
    pub(super) used: Use,
}

/// All that was found out about a pod's volumes.
#[derive(Debug, Default)]
pub(super) struct Placed {
    pub(super) parts: Vec<Part>,
    /// Some volume of the pod has no directory (yet).
    pub(super) incomplete: bool,
    /// The claims of the pod whose volumes have no directory.
    pub(super) without_directory: Vec<Box<str>>,
    /// Directories that are nobody's, each with a sentence.
    pub(super) troubles: Vec<String>,
}

/// A claim of the pod, under all names that the pod has for it.
type Claims<'a> = BTreeMap<&'a str, Vec<&'a Wanted>>;

/// Each directory comes with how far the pod is with it.
pub(super) fn place<'a>(
    record: &Record,
    found: impl IntoIterator<Item = (&'a Found, Phase)>,
    facts: impl Fn(&str) -> Option<&'a Facts>,
    of_claim: impl Fn(&str) -> Option<&'a Facts>,
    layout: &Layout,
) -> Placed {
    let mut claims = Claims::new();
    for wanted in &record.wanted {
        if let Source::Claim(claim) = &wanted.source {
            claims.entry(claim).or_default().push(wanted);
        }
    }
    let mut inline =
        record.wanted.iter().filter(|wanted| matches!(wanted.source, Source::Inline { .. })).count();
    let mut placed = Placed::default();
    let mut open = Vec::new();
    for (found, phase) in found {
        let facts = facts(&found.dir.name);
        let spot = Spot { record, found, phase, facts, layout };
        if let Some(wanted) = spot.inline() {
            inline -= 1;
            placed.push(spot.part(&[wanted]));
        } else if let Some(mine) = spot.claim().and_then(|claim| claims.remove(claim)) {
            placed.push(spot.part(&mine));
        } else if found.dir.is_csi() {
            open.push(spot);
        }
        // Anything else may be a volume that the pod brought itself, and its name only looks like that of a claim's.
    }
    for mode in [Mode::Filesystem, Mode::Block] {
        let spots = open.extract_if(.., |spot| spot.found.dir.mode == mode).collect::<Vec<_>>();
        let names: Vec<_> =
            claims.iter().filter(|(_, names)| names[0].mode == mode).map(|(&name, _)| name).collect();
        match (&spots[..], &names[..]) {
            // A PersistentVolume that was read said that it belongs to no claim of this pod.
            ([spot], [name]) if spot.facts.is_none() && !spot.note().is_some_and(VolData::is_inline) => {
                let mine = claims.remove(name).unwrap_or_default();
                placed.push(spot.part(&mine));
            }
            _ => spots.iter().for_each(|spot| placed.push(spot.part(&[]))),
        }
    }
    let mut missing = 0;
    for (claim, mine) in claims {
        placed.without_directory.push(claim.into());
        match of_claim(claim).map(|facts| without_directory(record, &mine, facts, layout)) {
            // It will never have one.
            Some(Some(part)) if part.source.is_some() => placed.parts.push(part),
            Some(Some(part)) => {
                missing += 1;
                placed.parts.push(part);
            }
            Some(None) | None => missing += 1,
        }
    }
    placed.incomplete = inline > 0 || missing > 0;
    placed
}

/// A volume for which the kubelet has no directory: a directory of the node, which it does not mount; or one that it has
/// not begun to mount, while the pod waits for it.
fn without_directory(record: &Record, mine: &[&Wanted], facts: &Facts, layout: &Layout) -> Option<Part> {
    let (first, pv) = (*mine.first()?, facts.name.clone()?);
    let uid = record.kubelet_uid();
    let waits = record.phase == Phase::Coming;
    let (key, target, source) = match (&facts.host_path, facts.csi.as_deref(), facts.plugin) {
        (Some(path), ..) => {
            let target = layout.volume(uid, HOST_PATH, &pv).ok()?;
            (
                Key { driver: HOST_PATH.replace('~', "/").into(), handle: pv.clone() },
                target,
                Some(path.to_path_buf()),
            )
        }
        (None, Some(csi), _) if waits => (csi.clone(), layout.publish(uid, &pv).ok()?, None),
        (None, None, Some(plugin)) if waits => {
            let target = match first.mode {
                Mode::Filesystem => layout.volume(uid, plugin, &pv).ok()?,
                Mode::Block => layout.block_map(uid, plugin, &pv).ok()?,
            };
            (Key { driver: plugin.replace('~', "/").into(), handle: pv.clone() }, target, None)
        }
        (None, ..) => return None,
    };
    Some(Part {
        mode: first.mode,
        staging: None,
        source,
        fs_type: facts.fs_type.clone(),
        used: Use {
            pod: record.pod.clone(),
            volume: Some(first.name.clone()),
            claim: facts.claim.clone(),
            pv: Some(pv),
            target,
            sub_paths: Box::default(),
            access: access(Some(facts), mine, false),
            phase: record.phase,
            kubelet: mine.iter().find_map(|wanted| wanted.kubelet.clone()),
        },
        key,
    })
}

fn access(facts: Option<&Facts>, mine: &[&Wanted], is_inline: bool) -> Access {
    let read_only = mine.iter().filter(|wanted| wanted.read_only).count();
    match facts {
        Some(facts) if facts.read_only => Access::ReadOnly,
        // The same claim under several names is mounted once, and it is unknown in whose way.
        _ if mine.is_empty() || 0 < read_only && read_only < mine.len() => Access::Unknown,
        _ if read_only > 0 => Access::ReadOnly,
        None if !is_inline => Access::Unknown,
        _ => Access::ReadWrite,
    }
}

impl Placed {
    fn push(&mut self, part: Result<Part, String>) {
        match part {
            Ok(part) => self.parts.push(part),
            Err(why) => self.troubles.push(why),
        }
    }
}

/// A directory of a pod, and what is known of it.
struct Spot<'a> {
    record: &'a Record,
    found: &'a Found,
    phase: Phase,
    facts: Option<&'a Facts>,
    layout: &'a Layout,
}

impl<'a> Spot<'a> {
    fn note(&self) -> Option<&'a VolData> {
        self.found.note.as_ref()?.as_ref().ok()
    }

    /// The inline volume that this is.
    fn inline(&self) -> Option<&'a Wanted> {
        let dir = &self.found.dir;
        if !dir.is_csi() {
            return None;
        }
        self.record.wanted.iter().find(|wanted| match &wanted.source {
            Source::Inline { driver, .. } if *wanted.name == *dir.name => {
                self.note().is_none_or(|note| *note.driver == **driver)
            }
            _ => false,
        })
    }

    /// The name of the claim in the pod's namespace that the PersistentVolume is bound to.
    fn claim(&self) -> Option<&'a str> {
        let claim = self.facts?.claim.as_ref()?;
        (claim.namespace == self.record.pod.namespace).then_some(&*claim.name)
    }

    /// `mine` are the names that the pod has for it. An error says why the volume is unknown.
    fn part(&self, mine: &[&Wanted]) -> Result<Part, String> {
        let Self { record, found, phase, facts, layout } = *self;
        let key = self.key()?;
        let first = mine.first().copied();
        let (uid, name, mode) = (record.kubelet_uid(), &*found.dir.name, found.dir.mode);
        let paths = || -> Result<_, NoComponent> {
            let target = match (mode, found.dir.plugin()) {
                (Mode::Filesystem, CSI) => layout.publish(uid, name)?,
                (Mode::Filesystem, plugin) => layout.volume(uid, plugin, name)?,
                (Mode::Block, CSI) => layout.block_publish(name, uid)?,
                (Mode::Block, plugin) => layout.block_map(uid, plugin, name)?,
            };
            let staging = match found.staging {
                Staging::None => None,
                Staging::Hashed => Some(layout.staging(&key.driver, &key.handle)?),
                Staging::Named => Some(layout.old_staging(name)?),
                Staging::Block => Some(layout.block_staging(name)?),
            };
            let sub_paths = mine.iter().flat_map(|wanted| &wanted.sub_paths);
            let sub_paths = sub_paths.map(|(container, index)| layout.sub_path(uid, name, container, *index));
            Ok((target, staging, sub_paths.collect::<Result<_, _>>()?))
        };
        let (target, staging, sub_paths) = paths().map_err(|why| format!("{why}, so it is left out"))?;
        let inline = first.and_then(|wanted| match &wanted.source {
            Source::Inline { fs_type, .. } => Some(fs_type),
            Source::Claim(_) => None,
        });
        let is_inline = inline.is_some() || self.note().is_some_and(VolData::is_inline);
        let claim = first.and_then(|wanted| match &wanted.source {
            Source::Claim(name) => Some(match facts.and_then(|facts| facts.claim.as_ref()) {
                Some(claim) => claim.clone(),
                None => {
                    let namespace = &record.pod.namespace;
                    Arc::new(ObjectRef::new(Kind::PersistentVolumeClaim, namespace, name, ""))
                }
            }),
            Source::Inline { .. } => None,
        });
        Ok(Part {
            mode,
            staging,
            source: None,
            fs_type: inline.cloned().unwrap_or_else(|| facts.and_then(|facts| facts.fs_type.clone())),
            used: Use {
                pod: record.pod.clone(),
                volume: first.map(|wanted| wanted.name.clone()),
                claim,
                pv: (!is_inline).then(|| found.dir.name.clone()),
                target,
                sub_paths,
                access: access(facts, mine, is_inline),
                phase,
                kubelet: mine.iter().find_map(|wanted| wanted.kubelet.clone()),
            },
            key,
        })
    }

    fn key(&self) -> Result<Key, String> {
        let dir = &self.found.dir;
        match (&self.found.note, self.facts.and_then(|facts| facts.csi.as_deref())) {
            // A plugin of the kubelet's own. In paths its name has other slashes.
            (None, _) => Ok(Key { driver: dir.plugin().replace('~', "/").into(), handle: dir.name.clone() }),
            (Some(Ok(note)), _) => Ok(Key { driver: note.driver.clone(), handle: note.handle.clone() }),
            (Some(Err(_)), Some(key)) => Ok(key.clone()),
            (Some(Err(why)), None) => Err(format!("{why}; the volume is left out until it can be")),
        }
    }
}

#[cfg(test)]
mod tests;
