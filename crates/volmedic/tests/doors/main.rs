//! A hostile pod attacks every listener of every role, each role within the memory that the chart gives it. Nothing dies, the
//! Leases are renewed, and a client that means no harm is served.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod anyone;
mod attack;
mod cgroup;
mod door;
mod honest;
mod pki;
mod role;

#[allow(dead_code, reason = "the hub's tests use the rest")]
#[path = "../hub/stage.rs"]
mod ground;
#[allow(dead_code, reason = "the controller's tests use the rest")]
#[path = "../controller/process.rs"]
mod process;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::task::JoinSet;

use attack::Attack;
use honest::{Client, Served};
use process::PATIENCE;
use role::{Ground, Role};

/// Of one attack on all listeners of one role.
const ATTACK: Duration = Duration::from_millis(2500);
/// A stranger must not fill the log.
const LOG_LINES: usize = 100;
/// How long 99 of 100 requests of an honest client may wait, and how long the others. The attackers are on the same two cores,
/// and so are other tests; for a single request that may be all the difference.
const SERVED_WITHIN: Duration = Duration::from_secs(2);
const AT_MOST: Duration = Duration::from_secs(10);

/// Ten thousand connections and their other ends need more than the usual number of files.
fn many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits }).unwrap();
    assert!(limits.maximum.is_none_or(|most| most >= 16_384), "ulimit -Hn must be 16384 or more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_dies_of_a_hostile_pod() {
    many_files();
    let ground = Ground::new().await;
    survives(ground.controller().await).await;
    survives(ground.agent().await).await;
    survives(ground.hub().await).await;
}

/// Everything that was seen of a role while it was attacked.
struct Watched {
    /// Most memory that the kernel cannot take back.
    memory: Arc<AtomicU64>,
    tasks: JoinSet<()>,
    /// The longest time for which the Lease was not renewed, in milliseconds.
    lease: Arc<AtomicU64>,
}

impl Watched {
    fn start(role: &Role) -> Self {
        let (memory, lease) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let mut tasks = JoinSet::new();
        let (leases, name, longest) = (role.leases.clone(), role.lease.clone(), lease.clone());
        tasks.spawn(async move {
            loop {
                // An API server that is too busy to answer is no finding about the role.
                if let Ok(Some(found)) = leases.get_opt(&name).await {
                    let renewed = found.spec.and_then(|spec| spec.renew_time).unwrap().0;
                    let age = Timestamp::now().duration_since(renewed).as_millis();
                    longest.fetch_max(u64::try_from(age).unwrap_or_default(), Ordering::Relaxed);
                }
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        });
        Self { memory, tasks, lease }
    }
}

#[allow(clippy::print_stdout, reason = "what was measured is shown with --nocapture, or with a failure")]
async fn survives(mut role: Role) {
    let name = role.name;
    let began = Instant::now();
    let found = loop {
        // The first renewal comes soon after the role began its work.
        if let Some(lease) = role.leases.get_opt(&role.lease).await.unwrap() {
            break lease.spec.unwrap();
        }
        assert!(began.elapsed() < PATIENCE, "{name} has no Lease: {}", role.process.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    for door in &role.doors {
        // The page is there a moment before it has something to show.
        while let Err(why) = honest::ask(door).await {
            assert!(began.elapsed() < PATIENCE, "{name} does not serve {:?}: {why}", door.kind);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let valid_for = Duration::from_secs(u64::try_from(found.lease_duration_seconds.unwrap()).unwrap());
    let mut watched = Watched::start(&role);
    let logged = role.process.log().lines().count();
    let began = Timestamp::now();
    let (mut late, mut requests) = (Vec::new(), 0);
    for attack in Attack::ALL {
        let clients: Vec<Client> =
            role.doors.iter().map(|door| Client::start(door.clone(), role.process.pid())).collect();
        let until = tokio::time::Instant::now() + ATTACK;
        let mut attacks = JoinSet::new();
        let doors = u32::try_from(role.doors.len()).unwrap();
        for door in role.doors.clone() {
            attacks.spawn(async move { attack.run(&door, doors, until).await });
        }
        let mut connections = 0;
        loop {
            tokio::select! {
                done = attacks.join_next() => match done {
                    Some(made) => connections += made.unwrap(),
                    None => break,
                },
                () = tokio::time::sleep(Duration::from_millis(50)) => {
                    watched.memory.fetch_max(role.group.pinned(), Ordering::Relaxed);
                }
            }
        }
        let served: Vec<Served> =
            tokio::task::spawn_blocking(|| clients.into_iter().flat_map(Client::stop).collect())
                .await
                .unwrap();
        let longest = served.iter().map(|one| one.waited).max().unwrap();
        println!(
            "{name}, {attack:?}: {connections} connections; {} honest requests, the longest took {longest:.0?}",
            served.len()
        );
        for kind in role.doors.iter().map(|door| door.kind) {
            assert!(
                served.iter().any(|one| one.kind == kind),
                "{name}, {attack:?}: no client asked {kind:?}"
            );
        }
        requests += served.len();
        let slow = served.into_iter().filter(|one| one.outcome.is_err() || one.waited > SERVED_WITHIN);
        late.extend(slow.map(|one| (attack, one)));
        assert!(role.process.is_running(), "{name} ended during {attack:?}: {}", role.process.log());
        assert_eq!(role.group.kills(), 0, "the kernel killed {name} for want of memory during {attack:?}");
    }
    let never = late.iter().any(|(_, one)| one.outcome.is_err() || one.waited > AT_MOST);
    assert!(
        !never && late.len() <= requests / 100,
        "{name} did not serve {} of {requests} honest requests within {SERVED_WITHIN:?}: {late:#?}",
        late.len()
    );

    let logged = role.process.log().lines().count() - logged;
    assert!(logged <= LOG_LINES, "{name} wrote {logged} lines to its log:\n{}", role.process.log());

    // Renewed all the time, and again after it all.
    let deadline = Instant::now() + valid_for;
    loop {
        let lease = role.leases.get(&role.lease).await.unwrap().spec.unwrap();
        if lease.renew_time.unwrap().0 > began && lease.holder_identity == found.holder_identity {
            break;
        }
        assert!(Instant::now() < deadline, "{name} does not renew its Lease: {}", role.process.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    watched.tasks.abort_all();
    while watched.tasks.join_next().await.is_some() {}
    let longest = Duration::from_millis(watched.lease.load(Ordering::Relaxed));
    let (memory, limit) = (watched.memory.load(Ordering::Relaxed) >> 20, role.group.limit >> 20);
    println!("{name}: at most {memory} of {limit} MiB; the Lease was renewed at least every {longest:.1?}");
    assert!(
        longest < valid_for,
        "the Lease of {name} was not renewed for {longest:?}, and is valid for {valid_for:?}"
    );
    assert!(memory < limit, "{name} needed {memory} MiB of {limit}");
}
