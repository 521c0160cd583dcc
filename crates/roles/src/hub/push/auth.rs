//! Who reports, and on what they may: the API server decides both.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use kube::Client;
use parking_lot::Mutex;
use volmedic_api::resource::GROUP;
use volmedic_hub::push::{AUDIENCE, VERB};
use volmedic_hub::{ClaimKey, Pace, Turns};
use volmedic_runtime::reviews::{Access, Denied, Reviews, User};

use super::refusal::Refusal;

/// Maximum number of answers that are remembered, of each kind.
const REMEMBERED: usize = 16_384;
/// Accounts whose pace is known. Beyond that, all start again.
const ACCOUNTS: usize = 4096;
/// Burst of an account, as a multiple of the reports per second that it may send.
const BURST: f64 = 5.0;
/// Questions of each kind to the API server per second, and the burst. A sender of one unknown token after the other
/// waits here, and causes no more requests than this.
const QUESTIONS: f64 = 300.0;
const QUESTIONS_BURST: u32 = 600;

pub(super) struct Gatekeeper {
    rate: f64,
    reviews: Reviews,
    paces: Mutex<HashMap<String, Pace>>,
    token_turns: Turns,
    right_turns: Turns,
}

impl Gatekeeper {
    /// For accounts that may send this number of reports per second each.
    pub(super) fn new(client: Client, rate: f64) -> Self {
        Self {
            rate,
            reviews: Reviews::new(client, Some(AUDIENCE), REMEMBERED),
            paces: Mutex::default(),
            token_turns: Turns::new(QUESTIONS, QUESTIONS_BURST),
            right_turns: Turns::new(QUESTIONS, QUESTIONS_BURST),
        }
    }

    pub(super) async fn authenticate(&self, token: Option<&str>) -> Result<Arc<User>, Refusal> {
        let token = token.ok_or(Refusal::NoToken)?;
        let answer = match self.reviews.known_user(token) {
            Some(answer) => answer,
            None => {
                self.token_turns.turn().await;
                self.reviews.ask_user(token).await
            }
        };
        answer.map_err(|denied| match denied {
            Denied::NoUser => Refusal::BadToken("the token belongs to no user".to_owned()),
            Denied::Unanswered(why) => Refusal::ApiServer(why),
            Denied::BadToken | Denied::NotAllowed => Refusal::BadToken(format!(
                "the token is not valid, has expired, or was not issued for the audience {AUDIENCE}"
            )),
        })
    }

    pub(super) async fn authorize(&self, user: &Arc<User>, claim: &ClaimKey) -> Result<(), Refusal> {
        let access = Access::Object {
            group: GROUP,
            resource: "volumehealths",
            verb: VERB,
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
        };
        let answer = match self.reviews.known_right(user, &access) {
            Some(answer) => answer,
            None => {
                self.right_turns.turn().await;
                self.reviews.ask_right(user, access).await
            }
        };
        answer.map_err(|denied| match denied {
            Denied::Unanswered(why) => Refusal::ApiServer(why),
            _ => Refusal::NotAllowed(format!(
                "{} may not report on {claim}; allow the verb {VERB} on volumehealths of {GROUP} named {} there",
                user.name, claim.name
            )),
        })
    }

    /// Lets an account send one more report, unless it sends too many.
    pub(super) fn pace(&self, user: &User) -> Result<(), Refusal> {
        let now = Instant::now();
        let mut paces = self.paces.lock();
        if paces.len() >= ACCOUNTS && !paces.contains_key(&user.name) {
            paces.clear();
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is above 0 and kept small"
        )]
        let burst = (self.rate * BURST).clamp(1.0, 1e6) as u32;
        let pace = paces.entry(user.name.clone()).or_insert_with(|| Pace::new(self.rate, burst, now));
        match pace.wait(now) {
            None => {
                pace.take(1);
                Ok(())
            }
            Some(at) => Err(Refusal::TooFast(at.saturating_duration_since(now).as_secs() + 1)),
        }
    }
}
