//! A shelf of one kind of thing: a directory each, with its record inside, and an index of them in memory.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::Shelved;
use super::disk::{read_record, remove_tree, sync_dir, write_record};
use crate::error::{Error, Result};
use crate::state_dir::{StateDir, is_id};

#[derive(Debug)]
pub(crate) struct Shelf<T> {
    place: PathBuf,
    new: PathBuf,
    trash: PathBuf,
    /// `None` when another process owns the shelf.
    index: Option<Mutex<Index<T>>>,
}

#[derive(Debug)]
struct Index<T> {
    /// Sorted, so that a page can start after any id, whether that one still exists or not.
    by_id: BTreeMap<String, Arc<T>>,
    by_name: HashMap<String, String>,
    bytes: u64,
}

impl<T: Shelved> Shelf<T> {
    pub(crate) fn open(state: &StateDir, place: PathBuf, owned: bool) -> Result<Self> {
        let mut shelf = Self { place, new: state.new_things(), trash: state.trash(), index: None };
        if owned {
            let mut index = Index { by_id: BTreeMap::new(), by_name: HashMap::new(), bytes: 0 };
            for id in shelf.ids_on_disk()? {
                match shelf.load(&id) {
                    Ok(Some(record)) => index.put(record),
                    // Kept on disk for a person to examine; one broken record must not take the others down.
                    Ok(None) => tracing::error!(id, "a directory without a record is ignored"),
                    Err(error) => tracing::error!(id, %error, "a broken record is ignored"),
                }
            }
            shelf.index = Some(Mutex::new(index));
        }
        Ok(shelf)
    }

    /// Reads the directory; for start-up only.
    pub(crate) fn ids_on_disk(&self) -> Result<Vec<String>> {
        let list = || {
            let mut ids = Vec::new();
            for entry in fs::read_dir(&self.place)? {
                ids.extend(entry?.file_name().into_string().ok().filter(|name| is_id(T::PREFIX, name)));
            }
            io::Result::Ok(ids)
        };
        list().map_err(Error::io(format_args!("list {}", self.place.display())))
    }

    pub(crate) fn get(&self, id: &str) -> Result<Option<Arc<T>>> {
        match &self.index {
            Some(index) => Ok(locked(index).by_id.get(id).cloned()),
            None if is_id(T::PREFIX, id) => Ok(self.load(id)?.map(Arc::new)),
            None => Ok(None),
        }
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<T>> {
        let index = locked(self.index.as_ref()?);
        index.by_name.get(name).and_then(|id| index.by_id.get(id)).cloned()
    }

    /// The sum of all sizes.
    pub(crate) fn bytes(&self) -> u64 {
        self.index.as_ref().map_or(0, |index| locked(index).bytes)
    }

    /// Up to `max` records after an id, in order of ids, that satisfy `wanted`; and whether there are more of them.
    pub(crate) fn page(
        &self,
        after: Option<&str>,
        max: usize,
        wanted: impl Fn(&T) -> bool,
    ) -> (Vec<Arc<T>>, bool) {
        let Some(index) = &self.index else { return (Vec::new(), false) };
        let index = locked(index);
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest =
            index.by_id.range::<str, _>((start, Bound::Unbounded)).map(|(_, r)| r).filter(|r| wanted(r));
        let page = rest.by_ref().take(max).cloned().collect();
        (page, rest.next().is_some())
    }

    /// Where a thing is put together before it appears.
    pub(crate) fn draft(&self, id: &str) -> Result<PathBuf> {
        let draft = self.new.join(id);
        fs::create_dir(&draft).map_err(Error::io(format_args!("make {}", draft.display())))?;
        Ok(draft)
    }

    /// Makes a drafted thing appear, by one rename.
    pub(crate) fn commit(&self, draft: &Path, record: T) -> Result<Arc<T>> {
        write_record(&draft.join(T::FILE), &record)?;
        let place = self.place.join(record.id());
        fs::rename(draft, &place)
            .and_then(|()| sync_dir(&self.place))
            .map_err(Error::io(format_args!("put {} in place", place.display())))?;
        Ok(self.put(record))
    }

    /// Replaces the record of a thing.
    pub(crate) fn update(&self, record: T) -> Result<Arc<T>> {
        write_record(&self.place.join(record.id()).join(T::FILE), &record)?;
        Ok(self.put(record))
    }

    /// Makes a thing vanish, by one rename, then frees what it held. Cut short, the rest is done at the next start.
    pub(crate) fn remove(&self, id: &str) -> Result<()> {
        let trash = self.trash.join(id);
        match fs::rename(self.place.join(id), &trash).and_then(|()| sync_dir(&self.place)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io(format_args!("take {id} out of {}", self.place.display()))(error));
            }
            _ => {}
        }
        if let Some(index) = &self.index {
            locked(index).take(id);
        }
        remove_tree(&trash)
    }

    fn put(&self, record: T) -> Arc<T> {
        match &self.index {
            Some(index) => {
                let mut index = locked(index);
                let id = record.id().to_owned();
                index.put(record);
                Arc::clone(&index.by_id[&id])
            }
            None => Arc::new(record),
        }
    }

    fn load(&self, id: &str) -> Result<Option<T>> {
        read_record(&self.place.join(id).join(T::FILE))
    }
}

impl<T: Shelved> Index<T> {
    fn put(&mut self, record: T) {
        self.bytes += record.bytes();
        self.by_name.insert(record.name().to_owned(), record.id().to_owned());
        if let Some(before) = self.by_id.insert(record.id().to_owned(), Arc::new(record)) {
            self.bytes -= before.bytes();
        }
    }

    fn take(&mut self, id: &str) {
        if let Some(record) = self.by_id.remove(id) {
            self.bytes -= record.bytes();
            self.by_name.remove(record.name());
        }
    }
}

fn locked<T>(index: &Mutex<Index<T>>) -> MutexGuard<'_, Index<T>> {
    index.lock()
}
