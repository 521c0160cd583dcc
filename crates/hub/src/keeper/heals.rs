//! What the healer did, in the claim's own object: its memory over a restart, and a lock against a second healer.

use volmedic_api::resource::{Heal, limit};

use super::store::Failure;
use super::{Keeper, PUSH_TRIES, PushError};
use crate::ClaimKey;

/// Why the list of heals is as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealsError {
    /// The claim has no object, so nothing was known to be wrong with it.
    NoObject,
    /// Who wanted to change the list does not want to, after having seen it.
    Declined(String),
    /// Not now; trying again later may help.
    Later(String),
}

impl Keeper {
    /// Adds an attempt to heal to a claim's object, which keeps the last few. A claim without an object has nothing to
    /// be healed from, and nothing is kept for it.
    pub async fn record_heal(&self, key: &ClaimKey, heal: &Heal) -> Result<(), PushError> {
        let add = |before: &[Heal]| Ok(std::iter::once(heal).chain(before).cloned().collect());
        self.change_heals(key, add).await.map_err(|error| match error {
            HealsError::NoObject => PushError::NoClaim,
            HealsError::Declined(why) | HealsError::Later(why) => PushError::Later(why),
        })
    }

    /// What is stored at this moment; `None` if the claim has no object. An error is a sentence, and asking again may help.
    pub async fn heals(&self, key: &ClaimKey) -> Result<Option<Vec<Heal>>, String> {
        let stored = self.store.read(key).await.map_err(|failure| failure.to_string())?;
        Ok(stored.map(|object| object.status.map(|status| status.heals).unwrap_or_default()))
    }

    /// Changes the list of heals. What `change` is given is what is stored, and its answer is written only if that is
    /// still so: of two healers who both want to begin, one sees what the other wrote.
    pub async fn change_heals(
        &self,
        key: &ClaimKey,
        change: impl Fn(&[Heal]) -> Result<Vec<Heal>, String>,
    ) -> Result<(), HealsError> {
        let later = |failure: Failure| HealsError::Later(failure.to_string());
        for _ in 0..PUSH_TRIES {
            let Some(object) = self.store.read(key).await.map_err(later)? else {
                return Err(HealsError::NoObject);
            };
            let before = object.status.as_ref().map_or(&[][..], |status| &status.heals);
            let mut heals = change(before).map_err(HealsError::Declined)?;
            heals.truncate(limit::HEALS);
            if heals == before {
                return Ok(());
            }
            match self.store.apply_heals(key, &object.metadata, &heals).await {
                Ok(object) => {
                    self.world.lock().put_stored(&key.namespace, &key.name, &object);
                    return Ok(());
                }
                Err(Failure::Moved) => {}
                Err(failure) => return Err(later(failure)),
            }
        }
        Err(HealsError::Later("others keep writing it".to_owned()))
    }
}
