//! Things by namespace and name. A namespace's name is kept once, however many things are in it.

use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Shelf<V>(HashMap<Arc<str>, HashMap<Box<str>, V>>);

impl<V> Default for Shelf<V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<V> Shelf<V> {
    pub(crate) fn put(&mut self, namespace: &str, name: &str, value: V) {
        self.entry(namespace).insert(name.into(), value);
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&V> {
        self.0.get(namespace)?.get(name)
    }

    pub(crate) fn take(&mut self, namespace: &str, name: &str) {
        if let Some(names) = self.0.get_mut(namespace) {
            names.remove(name);
        }
    }

    /// Namespace, name and thing, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &str, &V)> {
        self.0
            .iter()
            .flat_map(|(namespace, names)| names.iter().map(move |(name, value)| (namespace, &**name, value)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.values().all(HashMap::is_empty)
    }

    fn entry(&mut self, namespace: &str) -> &mut HashMap<Box<str>, V> {
        if !self.0.contains_key(namespace) {
            self.0.insert(namespace.into(), HashMap::new());
        }
        self.0.get_mut(namespace).expect("it was put there above")
    }
}

impl<V> Shelf<Vec<V>> {
    pub(crate) fn push(&mut self, namespace: &str, name: &str, value: V) {
        let names = self.entry(namespace);
        match names.get_mut(name) {
            Some(values) => values.push(value),
            None => drop(names.insert(name.into(), vec![value])),
        }
    }
}
