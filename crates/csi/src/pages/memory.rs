//! What came before in a pass: eight bytes for each volume and each token, bounded by the bounds of the pass.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Hashes instead of texts. They are keyed, so that no driver can give two texts the same hash on purpose, and with
/// 64 bits a million volumes have it by chance about once in thirty million passes.
#[derive(Debug, Default)]
pub(super) struct Memory {
    key: RandomState,
    volumes: HashSet<u64>,
    tokens: HashSet<u64>,
}

impl Memory {
    /// False if the volume came before.
    pub(super) fn new_volume(&mut self, id: &str) -> bool {
        self.volumes.insert(self.key.hash_one(id))
    }

    /// False if the token came before.
    pub(super) fn new_token(&mut self, token: &str) -> bool {
        self.tokens.insert(self.key.hash_one(token))
    }

    /// How many different volumes came.
    pub(super) fn volumes(&self) -> u64 {
        self.volumes.len() as u64
    }
}
