//! Names that many records share, such as namespaces, kept once and only as long as somebody uses them.

use std::collections::HashMap;
use std::sync::Arc;

use slab::Slab;

#[derive(Debug, Default)]
pub(crate) struct Interner {
    ids: HashMap<Arc<str>, u32>,
    entries: Slab<Entry>,
}

#[derive(Debug)]
struct Entry {
    text: Arc<str>,
    users: usize,
}

impl Interner {
    /// Counts one user more; each needs its own `release`.
    pub(crate) fn acquire(&mut self, text: &str) -> u32 {
        if let Some(&id) = self.ids.get(text) {
            self.entries[id as usize].users += 1;
            return id;
        }
        let text: Arc<str> = text.into();
        let id = self.entries.insert(Entry { text: text.clone(), users: 1 });
        let id = u32::try_from(id).expect("names are fewer than the records that use them");
        self.ids.insert(text, id);
        id
    }

    pub(crate) fn release(&mut self, id: u32) {
        let entry = &mut self.entries[id as usize];
        entry.users -= 1;
        if entry.users == 0 {
            let entry = self.entries.remove(id as usize);
            self.ids.remove(&entry.text);
        }
    }

    pub(crate) fn text(&self, id: u32) -> &str {
        &self.entries[id as usize].text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_lives_as_long_as_its_last_user() {
        let mut names = Interner::default();
        let a = names.acquire("a");
        let b = names.acquire("b");
        assert_eq!(names.acquire("a"), a);
        names.release(a);
        assert_eq!((names.text(a), names.text(b)), ("a", "b"));
        names.release(a);
        assert_eq!(names.ids.len(), 1);
        assert_eq!(names.entries.len(), 1);
        let c = names.acquire("c");
        assert_eq!((names.text(c), names.text(b)), ("c", "b"));
    }
}
