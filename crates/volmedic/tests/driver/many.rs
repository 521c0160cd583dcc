//! Many volumes: paging that misses and repeats nothing, and cost that grows with their number and not with its square.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::{Duration, Instant};

use tonic::Code;
use volmedic_proto::csi as wire;

use crate::calls::{Calls, assert_code};
use crate::ground::Ground;

const MIB: i64 = 1 << 20;
/// As many at the same time as a provisioner has workers.
const TOGETHER: usize = 50;

async fn create_many(csi: &Calls, range: std::ops::Range<usize>) -> Vec<String> {
    let mut ids = Vec::new();
    let numbers: Vec<usize> = range.collect();
    for chunk in numbers.chunks(TOGETHER) {
        let mut set = tokio::task::JoinSet::new();
        for number in chunk {
            let (mut csi, name) = (csi.clone(), format!("pvc-{number}"));
            set.spawn(async move { csi.create(&name, 16 * MIB, &[], false).await.unwrap() });
        }
        ids.extend(set.join_all().await);
    }
    ids
}

#[tokio::test]
async fn a_thousand_volumes_are_paged_through_while_some_come_and_go() {
    let mut ground = Ground::new();
    ground.start(&[]);
    let mut csi = Calls::to(&ground).await;
    let all: BTreeSet<String> = create_many(&csi, 0..1_000).await.into_iter().collect();
    assert_eq!(all.len(), 1_000);
    for page in [0, 1, 7, 1_000, 5_000, i32::MAX] {
        let listed = csi.list(page).await.unwrap();
        assert_eq!(listed.len(), 1_000, "pages of {page}");
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), all, "pages of {page}");
    }

    // The last volume of a page is deleted, and so is one further on; others are made. Who stays is seen once.
    let first = csi
        .controller
        .list_volumes(wire::ListVolumesRequest { max_entries: 100, ..Default::default() })
        .await;
    let first = first.unwrap().into_inner();
    let seen: Vec<String> = first.entries.into_iter().map(|entry| entry.volume.unwrap().volume_id).collect();
    assert_eq!(seen.len(), 100);
    let later = all.iter().nth(500).unwrap().clone();
    csi.delete(&seen[99]).await.unwrap();
    csi.delete(&later).await.unwrap();
    let made: BTreeSet<String> = create_many(&csi, 1_000..1_010).await.into_iter().collect();
    let request = wire::ListVolumesRequest { max_entries: 5_000, starting_token: first.next_token };
    let rest = csi.controller.list_volumes(request).await.unwrap().into_inner();
    assert!(rest.next_token.is_empty());
    let rest: Vec<String> = rest.entries.into_iter().map(|entry| entry.volume.unwrap().volume_id).collect();
    let expected: Vec<String> =
        all.union(&made).filter(|id| **id > seen[99] && **id != later).cloned().collect();
    assert_eq!(rest, expected);
    for bad in ["invalid-token", "1", &seen[0]] {
        let request = wire::ListVolumesRequest { max_entries: 1, starting_token: bad.to_owned() };
        assert_code(csi.controller.list_volumes(request).await, Code::Aborted);
    }

    // A restart keeps the tokens and the list.
    ground.kill();
    ground.start(&[]);
    let mut csi = Calls::to(&ground).await;
    let listed = csi.list(333).await.unwrap();
    assert_eq!(listed.len(), 1_008);
    for id in listed {
        csi.delete(&id).await.unwrap();
    }
    ground.assert_clean();
}

#[derive(Debug)]
struct Times {
    create: Duration,
    list: Duration,
    health: Duration,
    restart: Duration,
}

/// Run by `cargo xtask bench driver`.
#[tokio::test]
#[ignore = "a measurement, several minutes long"]
async fn how_time_grows_from_one_to_ten_thousand() {
    let mut ground = Ground::new();
    ground.start(&[]);
    let mut csi = Calls::to(&ground).await;
    let mut measured: Vec<(usize, Times)> = Vec::new();
    for (from, to) in [(0, 1_000), (1_000, 10_000)] {
        let start = Instant::now();
        create_many(&csi, from..to).await;
        let create = start.elapsed();
        let start = Instant::now();
        assert_eq!(csi.list(500).await.unwrap().len(), to);
        let list = start.elapsed();
        let start = Instant::now();
        let request = wire::ControllerListVolumeHealthRequest { max_entries: 500, ..Default::default() };
        let mut token = String::new();
        loop {
            let request =
                wire::ControllerListVolumeHealthRequest { starting_token: token, ..request.clone() };
            token =
                csi.controller.controller_list_volume_health(request).await.unwrap().into_inner().next_token;
            if token.is_empty() {
                break;
            }
        }
        let health = start.elapsed();
        ground.kill();
        let start = Instant::now();
        ground.start(&[]);
        let restart = start.elapsed();
        csi = Calls::to(&ground).await;
        println!(
            "{to} volumes: made {} in {create:.2?}, listed in {list:.2?}, health in {health:.2?}, restart {restart:.2?}",
            to - from
        );
        measured.push((to, Times { create, list, health, restart }));
    }
    if let Some(page) = std::env::var_os("VOLMEDIC_BENCH_PAGE") {
        std::fs::write(page, self::page(&measured)).unwrap();
    }
    let [(_, small), (_, large)] = measured.as_slice() else { panic!("two measurements") };
    let times = |large: Duration, small: Duration| large.as_secs_f64() / small.as_secs_f64();
    println!(
        "ten times the volumes take: list {:.1} times as long, health {:.1}, restart {:.1}; nine times as many made {:.1}",
        times(large.list, small.list),
        times(large.health, small.health),
        times(large.restart, small.restart),
        times(large.create, small.create),
    );
    // Ten times the volumes may take ten times as long, with room for a noisy machine; a square would be a hundred.
    let fair = 25;
    assert!(large.create < small.create * 9 * 25 / 10, "{small:?} {large:?}");
    assert!(large.list < small.list * fair, "{small:?} {large:?}");
    assert!(large.health < small.health * fair, "{small:?} {large:?}");
    assert!(large.restart < small.restart * fair + Duration::from_secs(1), "{small:?} {large:?}");
}

/// The page in the documentation.
fn page(measured: &[(usize, Times)]) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut text = format!(
        "# What the reference driver takes\n\n\
         Made by `cargo xtask bench driver` on a machine with {cores} cores. Do not edit; run it again.\n\n\
         Volumes are sparse images of 16 MiB that are not mounted, made by {TOGETHER} callers at once. *Made* is how many \
         were made for the row and the time it took, *list* a ListVolumes and *health* a ControllerListVolumeHealth of \
         all volumes in pages of 500, and *restart* the time from the start of a killed driver to its socket. In the \
         last row stands how many times as long it took as with a tenth of the volumes: 10 is in proportion, 100 would \
         be a square.\n\n\
         | volumes | made | ms per volume made | list ms | health ms | restart ms |\n\
         |--------:|-----:|-------------------:|--------:|----------:|-----------:|\n"
    );
    let milliseconds = |time: Duration| time.as_secs_f64() * 1_000.0;
    let mut before = 0;
    for (volumes, Times { create, list, health, restart }) in measured {
        let made = volumes - before;
        before = *volumes;
        let each = milliseconds(*create) / f64::from(u32::try_from(made).unwrap());
        let [list, health, restart] = [list, health, restart].map(|time| milliseconds(*time));
        writeln!(text, "| {volumes} | {made} | {each:.2} | {list:.1} | {health:.1} | {restart:.1} |")
            .unwrap();
    }
    if let [(few, small), (many, large)] = measured {
        let times = |large: Duration, small: Duration| large.as_secs_f64() / small.as_secs_f64();
        let each = |all: Duration, made: usize| all / u32::try_from(made).unwrap();
        writeln!(
            text,
            "| × | | {:.2} | {:.1} | {:.1} | {:.1} |",
            times(each(large.create, many - few), each(small.create, *few)),
            times(large.list, small.list),
            times(large.health, small.health),
            times(large.restart, small.restart),
        )
        .unwrap();
    }
    text
}
