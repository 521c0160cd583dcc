//! How long a large mount table takes, against the simplest parser that could be written:
//! `cargo run --release -p volmedic-host --example mountinfo`.

#![expect(clippy::print_stdout, reason = "it prints its figures")]

use std::fmt::Write;
use std::hint::black_box;
use std::time::{Duration, Instant};

use volmedic_host::mounts::Table;

const LINES: u32 = 20_000;
const ROUNDS: u32 = 20;

fn main() {
    let mut text = String::from("1 0 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n");
    for n in 2..=LINES {
        let _ = writeln!(
            text,
            "{n} 1 7:{n} / /var/lib/kubelet/pods/{n:032x}/volumes/kubernetes.io~csi/pvc-{n:08x}/mount rw,relatime \
             shared:{n} - ext4 /dev/loop{n} rw,errors=remount-ro"
        );
    }
    let ours = best(|| Table::parse(black_box(text.clone().into_bytes())).len());
    let naive = best(|| naive(black_box(&text)).len());
    let table = Table::parse(text.clone().into_bytes());
    let path = format!("/var/lib/kubelet/pods/{LINES:032x}/volumes/kubernetes.io~csi/pvc-{LINES:08x}/mount");
    let lookup = best(|| (0..1000).filter(|_| table.at(black_box(&path)).is_some()).count());
    println!("{LINES} lines, {} bytes", text.len());
    println!("parsed and indexed in {ours:?}; split into owned strings, without any index, in {naive:?}");
    println!("one lookup by path in {:?}", lookup / 1000);
}

fn best(mut act: impl FnMut() -> usize) -> Duration {
    let rounds = (0..ROUNDS).map(|_| {
        let started = Instant::now();
        black_box(act());
        started.elapsed()
    });
    rounds.min().unwrap_or_default()
}

fn naive(text: &str) -> Vec<Vec<String>> {
    text.lines()
        .map(|line| line.split_whitespace().map(|field| field.replace("\\040", " ")).collect())
        .collect()
}
