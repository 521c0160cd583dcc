//! The life of a volume, as far as the other rules need it.

use super::answered;
use crate::bench::Bench;
use crate::report::{Judged, broken, not_applicable};
use crate::text::line;

pub(super) async fn made(bench: &mut Bench) -> Judged {
    let ids = bench.make_volumes().await?;
    let Some(name) = bench.volumes.made.first().map(|made| made.name.clone()) else {
        return not_applicable("no volume was made");
    };
    let call = format!("CreateVolume({name}) again");
    let answer = bench.create(&name).await;
    let again = answered(&call, answer)?;
    if again.volume_id != ids[0] {
        return broken(format!("{call} gave {}, before {}", line(&again.volume_id), line(&ids[0])));
    }
    Ok(format!("{} volumes, and the first again: {}", ids.len(), line(&ids[0])))
}

pub(super) async fn deleted(bench: &mut Bench) -> Judged {
    let id = bench.gone().await?;
    let answer = bench.delete(&id).await;
    answered("DeleteVolume of a deleted volume", answer)?;
    Ok("DeleteVolume of a deleted volume answered OK".to_owned())
}

pub(super) async fn published(bench: &mut Bench) -> Judged {
    let published = bench.publish_volume().await?;
    Ok(format!("published at {}", published.target))
}
