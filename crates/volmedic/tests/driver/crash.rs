//! The driver is killed again and again in the middle of whatever it does. What it said it did stays done, nothing is
//! there twice, and nothing is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use tonic::Code;
use volmedic_driver::record::NodeRecord;

use crate::calls::Calls;
use crate::ground::Ground;

const MIB: i64 = 1 << 20;
const ROUNDS: u32 = 60;
const SLOTS: usize = 4;

/// A small generator, so that a failure can be run again from its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// What a volume of the test has been through, as far as the driver has said so.
#[derive(Clone, Debug, Default)]
struct Known {
    id: Option<String>,
    /// A deletion was asked for; it may or may not have come to pass.
    deleting: bool,
    /// The driver said that it was published, and nobody asked it to unpublish since.
    published: bool,
    /// A file with this content was written and synced.
    marked: bool,
}

struct Slot {
    number: usize,
    staging: String,
    target: String,
}

impl Slot {
    fn parameters(&self) -> &'static [(&'static str, &'static str)] {
        if self.number.is_multiple_of(2) { &[] } else { &[("kind", "fuse")] }
    }
}

/// Goes one random step at a time until the driver is gone.
async fn work(mut csi: Calls, slot: &Slot, known: &mut Known, mut dice: Dice) {
    loop {
        let outcome = match (&known.id.clone(), dice.roll(8)) {
            (None, _) => csi
                .create(&format!("slot-{}", slot.number), 32 * MIB, slot.parameters(), false)
                .await
                .map(|id| {
                    *known = Known { id: Some(id), ..Known::default() };
                }),
            (Some(id), 0..=3) => {
                let up = async {
                    csi.stage(id, &slot.staging, false).await?;
                    csi.publish(id, &slot.staging, &slot.target, false, false).await
                };
                up.await.map(|()| {
                    known.published = true;
                    if !known.marked {
                        let file = Path::new(&slot.target).join("mark");
                        fs::write(&file, id).unwrap();
                        fs::File::open(&file).unwrap().sync_all().unwrap();
                        known.marked = true;
                    }
                })
            }
            (Some(id), 4..=6) => {
                known.published = false;
                let down = async {
                    csi.unpublish(id, &slot.target).await?;
                    csi.unstage(id, &slot.staging).await
                };
                down.await
            }
            (Some(id), _) => {
                known.published = false;
                let down = async {
                    csi.unpublish(id, &slot.target).await?;
                    csi.unstage(id, &slot.staging).await
                };
                if let Err(status) = down.await {
                    Err(status)
                } else {
                    known.deleting = true;
                    csi.delete(id).await.map(|()| *known = Known::default())
                }
            }
        };
        match outcome {
            Ok(()) => {}
            // The connection broke: the driver was killed.
            Err(status) if matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled) => {
                return;
            }
            Err(status) => panic!("slot {}: {status:?}", slot.number),
        }
    }
}

/// What must hold whenever a driver has just started.
async fn check(ground: &Ground, csi: &mut Calls, slots: &[Slot], known: &mut BTreeMap<usize, Known>) {
    for place in [ground.state().new_things(), ground.state().trash()] {
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "{}", place.display());
    }
    let listed: BTreeSet<String> = csi.list(0).await.unwrap().into_iter().collect();
    assert!(listed.len() <= slots.len(), "a repeated name made a second volume: {listed:?}");

    let mut recorded = BTreeSet::new();
    for id in &listed {
        let Ok(text) = fs::read(ground.volume(id).node_record()) else { continue };
        let record: NodeRecord = serde_json_from(&text);
        if let Some(attached) = record.loop_device
            && attached.is_live()
        {
            recorded.insert(format!("loop{}", attached.number));
        }
    }
    let attached: Vec<String> = ground.loop_devices().into_iter().map(|(device, _)| device).collect();
    assert_eq!(
        attached.iter().cloned().collect::<BTreeSet<_>>(),
        recorded,
        "each loop device is known, and once"
    );

    let mounters: Vec<String> = ground.mounters().into_iter().map(|(_, id)| id).collect();
    assert_eq!(mounters.iter().collect::<BTreeSet<_>>().len(), mounters.len(), "two mounters for one volume");
    assert!(mounters.iter().all(|id| listed.contains(id)), "{mounters:?} {listed:?}");

    for slot in slots {
        let known = known.entry(slot.number).or_default();
        let Some(id) = known.id.clone() else { continue };
        if known.deleting && !listed.contains(&id) {
            *known = Known::default();
            continue;
        }
        known.deleting = false;
        assert!(listed.contains(&id), "volume {id} of slot {} was lost", slot.number);
        if known.published {
            let found = fs::read_to_string(Path::new(&slot.target).join("mark")).unwrap();
            assert_eq!(found, id, "a published volume stayed published, with its data");
        }
    }
}

fn serde_json_from(text: &[u8]) -> NodeRecord {
    serde_json::from_slice(text).expect("a record is whole at any moment")
}

#[tokio::test]
async fn killed_at_any_moment() {
    let mut ground = Ground::new();
    let slots: Vec<Slot> = (0..SLOTS)
        .map(|number| Slot {
            number,
            staging: ground.kubelet(&format!("staging-{number}")),
            target: ground.kubelet(&format!("target-{number}")),
        })
        .collect();
    let mut known: BTreeMap<usize, Known> = BTreeMap::new();
    let mut dice = Dice(0x5eed);
    for round in 0..ROUNDS {
        ground.start(&[]);
        let mut csi = Calls::to(&ground).await;
        check(&ground, &mut csi, &slots, &mut known).await;
        // Long enough for a few steps; where in them it hits is left to chance.
        let lifetime = Duration::from_micros(dice.roll(150_000));
        let mut killed = false;
        {
            let mut workers = Vec::new();
            for slot in &slots {
                let mut mine = known.remove(&slot.number).unwrap_or_default();
                let (csi, dice) = (csi.clone(), Dice(dice.roll(u64::MAX)));
                workers.push(async move {
                    work(csi, slot, &mut mine, dice).await;
                    (slot.number, mine)
                });
            }
            let kill = async {
                tokio::time::sleep(lifetime).await;
                ground.kill();
                killed = true;
            };
            let (done, ()) = tokio::join!(join_all(workers), kill);
            known.extend(done);
        }
        assert!(killed, "round {round}");
    }

    ground.start(&[]);
    let mut csi = Calls::to(&ground).await;
    check(&ground, &mut csi, &slots, &mut known).await;
    // Every volume that is left can be used, has its data, and can be put away.
    for slot in &slots {
        let id =
            csi.create(&format!("slot-{}", slot.number), 32 * MIB, slot.parameters(), false).await.unwrap();
        csi.stage(&id, &slot.staging, false).await.unwrap();
        csi.publish(&id, &slot.staging, &slot.target, false, false).await.unwrap();
        if known[&slot.number].marked {
            assert_eq!(fs::read_to_string(Path::new(&slot.target).join("mark")).unwrap(), id);
        }
        csi.unpublish(&id, &slot.target).await.unwrap();
        csi.unstage(&id, &slot.staging).await.unwrap();
        csi.delete(&id).await.unwrap();
    }
    ground.assert_clean();
}

/// Drives all futures side by side on this task.
async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut ready = true;
        for (future, outcome) in &mut waiting {
            if outcome.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *outcome = Some(value),
                    std::task::Poll::Pending => ready = false,
                }
            }
        }
        if ready { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    waiting.into_iter().filter_map(|(_, outcome)| outcome).collect()
}
