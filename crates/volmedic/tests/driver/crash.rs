//! The driver is killed again and again in the middle of whatever it does. What it said it did stays done, nothing is
//! there twice, and nothing is lost.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tonic::Code;
use volmedic_driver::record::NodeRecord;
use volmedic_proto::csi as wire;
use volmedic_proto::csi::volume_content_source::{SnapshotSource, Type};
use volmedic_testkit::seed;

use crate::calls::{Calls, Outcome, capability};
use crate::ground::{Ground, SOON};

const MIB: i64 = 1 << 20;
const ROUNDS: u32 = 60;
const MOST_STEPS: u64 = 24;
/// How much a volume may grow by in all, a step at a time.
const GROWTH: i64 = 32 * MIB;
const STEP: i64 = 8 * MIB;

/// What volumes of a slot are made of, and how large they are at first.
const SLOTS: [(&[(&str, &str)], i64); 6] = [
    (&[], 32 * MIB),
    (&[("kind", "fuse")], 32 * MIB),
    (&[("fsType", "xfs")], 300 * MIB),
    (&[("fsType", "btrfs")], 256 * MIB),
    (&[], 32 * MIB),
    (&[("kind", "fuse")], 32 * MIB),
];
/// The slot whose volume is a raw block device.
const BLOCK: usize = 4;

/// What was done, so that the test does not prove less than it seems to.
#[derive(Debug, Default)]
struct Tally {
    /// Steps in which the driver was asked for something.
    steps: Cell<u32>,
    published: Cell<u32>,
    grown: Cell<u32>,
    snapshots: Cell<u32>,
}

fn count(cell: &Cell<u32>) {
    cell.set(cell.get() + 1);
}

/// A small generator, so that a failure can be run again from its seed.
struct Dice(u64);

impl Dice {
    /// How many steps a driver lives for, all slots together.
    fn steps(&mut self) -> u32 {
        u32::try_from(self.roll(MOST_STEPS)).unwrap()
    }

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
    /// The driver said that it was unstaged, and nobody asked it to stage since.
    resting: bool,
    /// Its id was written into it and synced.
    marked: bool,
    /// The driver said that it is at least so large.
    bytes: i64,
    snapshot: Option<Snapshot>,
}

#[derive(Clone, Debug)]
struct Snapshot {
    id: String,
    deleting: bool,
    /// The id of the volume, if that was in it when the snapshot was taken.
    mark: Option<String>,
}

struct Slot {
    number: usize,
    staging: String,
    target: String,
}

impl Slot {
    fn parameters(&self) -> &'static [(&'static str, &'static str)] {
        SLOTS[self.number].0
    }

    fn bytes(&self) -> i64 {
        SLOTS[self.number].1
    }

    fn block(&self) -> bool {
        self.number == BLOCK
    }

    /// Volumes of kind fuse cannot be copied.
    fn copies(&self) -> bool {
        !self.parameters().contains(&("kind", "fuse"))
    }

    async fn create(&self, csi: &mut Calls) -> Outcome<String> {
        csi.create(&format!("slot-{}", self.number), self.bytes(), self.parameters(), self.block()).await
    }

    async fn up(&self, csi: &mut Calls, id: &str) -> Outcome<()> {
        csi.stage(id, &self.staging, self.block()).await?;
        csi.publish(id, &self.staging, &self.target, self.block(), false).await
    }

    async fn down(&self, csi: &mut Calls, id: &str) -> Outcome<()> {
        csi.unpublish(id, &self.target).await?;
        csi.unstage(id, &self.staging).await
    }

    fn mark(&self, id: &str) {
        let file = if self.block() {
            fs::File::options().write(true).open(&self.target).unwrap()
        } else {
            fs::File::create(Path::new(&self.target).join("mark")).unwrap()
        };
        (&file).write_all(id.as_bytes()).unwrap();
        file.sync_all().unwrap();
    }

    fn read_mark(&self, id: &str) -> String {
        let mut text = vec![0; id.len()];
        let file =
            if self.block() { PathBuf::from(&self.target) } else { Path::new(&self.target).join("mark") };
        fs::File::open(file).unwrap().read_exact(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }
}

/// Goes one random step at a time until the driver is gone.
async fn work(mut csi: Calls, slot: &Slot, known: &mut Known, mut dice: Dice, tally: &Tally) {
    loop {
        match step(&mut csi, slot, known, &mut dice, tally).await {
            Ok(true) => count(&tally.steps),
            Ok(false) => {}
            // The connection broke: the driver was killed.
            Err(status) if matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled) => {
                return;
            }
            Err(status) => panic!("slot {}: {status:?}", slot.number),
        }
    }
}

/// Answers whether the driver was asked for anything.
async fn step(
    csi: &mut Calls,
    slot: &Slot,
    known: &mut Known,
    dice: &mut Dice,
    tally: &Tally,
) -> Outcome<bool> {
    let Some(id) = known.id.clone() else {
        let id = slot.create(csi).await?;
        let snapshot = known.snapshot.take();
        *known = Known { id: Some(id), bytes: slot.bytes(), resting: true, snapshot, ..Known::default() };
        return Ok(true);
    };
    match dice.roll(12) {
        0..=3 => {
            known.resting = false;
            slot.up(csi, &id).await?;
            known.published = true;
            count(&tally.published);
            if !known.marked {
                slot.mark(&id);
                known.marked = true;
            }
        }
        4..=6 => {
            known.published = false;
            slot.down(csi, &id).await?;
            known.resting = true;
        }
        7 | 8 if known.published && known.bytes < slot.bytes() + GROWTH => {
            let wanted = known.bytes + STEP;
            match csi.expand(&id, &slot.target, wanted).await {
                Ok(bytes) => known.bytes = bytes,
                // ext4 asks for more rights to grow than a container may have; its image has grown all the same.
                Err(status) if status.message().contains("CAP_SYS_RESOURCE") => known.bytes = wanted,
                Err(status) => return Err(status),
            }
            count(&tally.grown);
        }
        9 | 10 if slot.copies() => match &mut known.snapshot {
            Some(snapshot) => {
                snapshot.deleting = true;
                let request =
                    wire::DeleteSnapshotRequest { snapshot_id: snapshot.id.clone(), ..Default::default() };
                csi.controller.delete_snapshot(request).await?;
                known.snapshot = None;
            }
            None if known.resting => {
                let request = wire::CreateSnapshotRequest {
                    source_volume_id: id.clone(),
                    // Its own for each volume: a name that is taken by one that is gone would be a conflict.
                    name: format!("of-{id}"),
                    ..Default::default()
                };
                let made = csi.controller.create_snapshot(request).await?.into_inner().snapshot.unwrap();
                count(&tally.snapshots);
                let mark = known.marked.then_some(id);
                known.snapshot = Some(Snapshot { id: made.snapshot_id, deleting: false, mark });
            }
            None => return Ok(false),
        },
        11 => {
            known.published = false;
            slot.down(csi, &id).await?;
            known.deleting = true;
            csi.delete(&id).await?;
            *known = Known { snapshot: known.snapshot.take(), ..Known::default() };
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// What must hold whenever a driver has just started.
async fn check(ground: &Ground, csi: &mut Calls, slots: &[Slot], known: &mut BTreeMap<usize, Known>) {
    for place in [ground.state().new_things(), ground.state().trash()] {
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "{}", place.display());
    }
    let all = csi.controller.list_volumes(wire::ListVolumesRequest::default()).await.unwrap().into_inner();
    let sizes: BTreeMap<String, i64> = all
        .entries
        .into_iter()
        .map(|entry| entry.volume.unwrap())
        .map(|volume| (volume.volume_id, volume.capacity_bytes))
        .collect();
    let listed: BTreeSet<String> = sizes.keys().cloned().collect();
    assert!(listed.len() <= slots.len(), "a repeated name made a second volume: {listed:?}");
    let snapshots = wire::ListSnapshotsRequest::default();
    let snapshots = csi.controller.list_snapshots(snapshots).await.unwrap().into_inner();
    let snapshots: BTreeSet<String> =
        snapshots.entries.into_iter().map(|entry| entry.snapshot.unwrap().snapshot_id).collect();

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
        if let Some(snapshot) = &mut known.snapshot {
            if snapshot.deleting && !snapshots.contains(&snapshot.id) {
                known.snapshot = None;
            } else {
                snapshot.deleting = false;
                assert!(snapshots.contains(&snapshot.id), "{snapshot:?} of slot {} was lost", slot.number);
            }
        }
        let Some(id) = known.id.clone() else { continue };
        if known.deleting && !listed.contains(&id) {
            *known = Known { snapshot: known.snapshot.take(), ..Known::default() };
            continue;
        }
        known.deleting = false;
        assert!(listed.contains(&id), "volume {id} of slot {} was lost", slot.number);
        assert!(sizes[&id] >= known.bytes, "slot {}: {known:?} has {} bytes only", slot.number, sizes[&id]);
        // It may have grown to a size that no caller knows.
        known.bytes = sizes[&id];
        if known.published {
            assert_eq!(slot.read_mark(&id), id, "a published volume stayed published, with its data");
        }
    }
}

fn serde_json_from(text: &[u8]) -> NodeRecord {
    serde_json::from_slice(text).expect("a record is whole at any moment")
}

#[tokio::test]
async fn killed_at_any_moment() {
    let mut ground = Ground::new();
    let slots: Vec<Slot> = (0..SLOTS.len())
        .map(|number| Slot {
            number,
            staging: ground.kubelet(&format!("staging-{number}")),
            target: ground.kubelet(&format!("target-{number}")),
        })
        .collect();
    let mut known: BTreeMap<usize, Known> = BTreeMap::new();
    let mut dice = Dice(seed("killed_at_any_moment"));
    let tally = Tally::default();
    for round in 0..ROUNDS {
        ground.start(&[]);
        let mut csi = Calls::to(&ground).await;
        check(&ground, &mut csi, &slots, &mut known).await;
        // A few steps, however long they take on this machine; where in the next ones it hits is left to chance.
        let (enough, moment) = (tally.steps.get() + dice.steps(), Duration::from_micros(dice.roll(20_000)));
        let mut killed = false;
        {
            let mut workers = Vec::new();
            for slot in &slots {
                let mut mine = known.remove(&slot.number).unwrap_or_default();
                let (csi, dice, tally) = (csi.clone(), Dice(dice.roll(u64::MAX)), &tally);
                workers.push(async move {
                    work(csi, slot, &mut mine, dice, tally).await;
                    (slot.number, mine)
                });
            }
            let kill = async {
                let deadline = Instant::now() + SOON;
                while tally.steps.get() < enough {
                    assert!(Instant::now() < deadline, "{tally:?} in round {round}\n{}", ground.log());
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                tokio::time::sleep(moment).await;
                ground.kill();
                killed = true;
            };
            let (done, ()) = tokio::join!(join_all(workers), kill);
            known.extend(done);
        }
        assert!(killed, "round {round}");
    }
    let done = [&tally.published, &tally.grown, &tally.snapshots].map(Cell::get);
    assert!(done.iter().all(|count| *count > 0), "{tally:?}");

    ground.start(&[]);
    let mut csi = Calls::to(&ground).await;
    check(&ground, &mut csi, &slots, &mut known).await;
    // Every volume that is left can be used, has its data, and can be put away; so can copies of snapshots.
    for slot in &slots {
        let known = &known[&slot.number];
        let id = slot.create(&mut csi).await.unwrap();
        slot.up(&mut csi, &id).await.unwrap();
        if known.marked {
            assert_eq!(slot.read_mark(&id), id);
        }
        slot.down(&mut csi, &id).await.unwrap();
        csi.delete(&id).await.unwrap();
        if let Some(snapshot) = &known.snapshot {
            restore(&mut csi, slot, snapshot).await;
        }
    }
    // A snapshot whose making was cut short after it was whole is nobody's in this test.
    let left = csi.controller.list_snapshots(wire::ListSnapshotsRequest::default()).await.unwrap();
    for entry in left.into_inner().entries {
        let snapshot_id = entry.snapshot.unwrap().snapshot_id;
        let request = wire::DeleteSnapshotRequest { snapshot_id, ..Default::default() };
        csi.controller.delete_snapshot(request).await.unwrap();
    }
    ground.assert_clean();
}

async fn restore(csi: &mut Calls, slot: &Slot, snapshot: &Snapshot) {
    let source = SnapshotSource { snapshot_id: snapshot.id.clone() };
    let request = wire::CreateVolumeRequest {
        name: format!("restored-{}", slot.number),
        capacity_range: Some(wire::CapacityRange { required_bytes: slot.bytes() + GROWTH, limit_bytes: 0 }),
        volume_capabilities: vec![capability(slot.block())],
        parameters: slot
            .parameters()
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect(),
        volume_content_source: Some(wire::VolumeContentSource { r#type: Some(Type::Snapshot(source)) }),
        ..Default::default()
    };
    let made = csi.controller.create_volume(request).await.unwrap().into_inner().volume.unwrap().volume_id;
    slot.up(csi, &made).await.unwrap();
    if let Some(mark) = &snapshot.mark {
        assert_eq!(&slot.read_mark(mark), mark, "a copy has what the snapshot had");
    }
    slot.down(csi, &made).await.unwrap();
    csi.delete(&made).await.unwrap();
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
