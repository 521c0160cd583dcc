//! Vantages by number, so that a healthy volume remembers one bit and not a node's name.

use std::collections::HashMap;

use crate::Vantage;

pub(super) type Index = u32;

#[derive(Debug, Default)]
pub(super) struct Vantages {
    by_index: Vec<Option<Vantage>>,
    by_name: HashMap<Vantage, Index>,
    free: Vec<Index>,
}

impl Vantages {
    pub(super) fn find(&self, vantage: &Vantage) -> Option<Index> {
        self.by_name.get(vantage).copied()
    }

    pub(super) fn get(&self, index: Index) -> Option<&Vantage> {
        self.by_index.get(index as usize)?.as_ref()
    }

    pub(super) fn index(&mut self, vantage: &Vantage) -> Index {
        if let Some(index) = self.find(vantage) {
            return index;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.by_index.push(None);
            Index::try_from(self.by_index.len() - 1).expect("fewer than four billion vantages")
        });
        self.by_index[index as usize] = Some(vantage.clone());
        self.by_name.insert(vantage.clone(), index);
        index
    }

    /// The number may be given to another vantage afterwards: nothing may still hold it.
    pub(super) fn release(&mut self, index: Index) {
        if let Some(vantage) = self.by_index.get_mut(index as usize).and_then(Option::take) {
            self.by_name.remove(&vantage);
            self.free.push(index);
        }
    }
}
