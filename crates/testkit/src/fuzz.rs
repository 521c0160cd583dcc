//! Fuzz targets that run on stable Rust: inputs are those kept in `fuzz/corpus/TARGET`, and mutations of them.
//!
//! A target is an ordinary test of the crate that has the parser, because most parsers are private. In an ordinary run it
//! replays the corpus and some mutations. `cargo xtask fuzz` runs it for longer, by the variables below.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::digest::hex_digest;
use crate::seed::seed;

/// For how many seconds inputs are mutated. Without it, their number is `USUAL`.
pub const SECONDS: &str = "VOLMEDIC_FUZZ_SECONDS";
/// A file that has the input that is being run, which is left behind if the process dies of it.
pub const CURRENT: &str = "VOLMEDIC_FUZZ_CURRENT";

const USUAL: u64 = 2_000;
const LONGEST: usize = 64 * 1024;
/// Maximum number of inputs that are mutated further, and their maximum size: more short inputs can be run.
const POOL: usize = 1024;
const SHORT: usize = 4096;
/// One input should take microseconds. A busy machine may stall for seconds.
const SLOW: Duration = Duration::from_secs(20);
/// Bytes that mean something in JSON, protobuf, paths and the kernel's files.
const BYTES: &[u8] = b"\0\x01\x7f\x80\xff\"\\{}[]():;,./-=# \t\n0919eE";
/// What numbers, times and texts are replaced by.
const WORDS: &[&str] = &[
    "-1",
    "0",
    "4294967296",
    "-2147483649",
    "9223372036854775808",
    "18446744073709551616",
    "1e400",
    "NaN",
    "null",
    "true",
    "9999-12-31T23:59:59.999999999Z",
    "-009999-01-01T00:00:00Z",
    "1970-01-01T00:00:00+24:00",
    "\u{202e}",
    "\u{0}",
    "\\ud800",
    "\\u0000",
    "\\040",
    "\\999",
    "..",
    "//",
    "\r\n",
    "é",
    "\u{1f4be}",
    "{}",
    "[]",
    "[{}]",
    "{\"\":\"\"}",
];

/// Runs a parser on inputs. `accepts` answers whether it took the input for valid; such inputs are mutated further.
///
/// # Panics
///
/// If `accepts` does, or takes very long; the input is then kept in the corpus. If the corpus cannot be read.
pub fn fuzz(target: &str, accepts: impl Fn(&[u8]) -> bool) {
    let folder = corpus(target);
    let kept = read(&folder);
    let current = std::env::var_os(CURRENT)
        .map(|path| fs::File::create(path).expect("the file for the input can be made"));
    let mut runs = Runs { target, folder: &folder, accepts, current, count: 0, accepted: 0 };
    for input in &kept {
        runs.run(input);
    }
    let limit = std::env::var(SECONDS)
        .ok()
        .map(|text| Duration::from_secs(text.parse().expect("a number of seconds")));
    let seed = seed(&format!("fuzz {target}"));
    let (began, mut random) = (Instant::now(), fastrand::Rng::with_seed(seed));
    let mut pool = kept.clone();
    while limit.map_or(runs.count < USUAL, |limit| began.elapsed() < limit) {
        let input = mutated(&mut random, &pool);
        if runs.run(&input) && input.len() <= SHORT {
            if pool.len() < POOL {
                pool.push(input);
            } else {
                // What is kept in the corpus stays.
                let place = random.usize(kept.len().min(POOL - 1)..POOL);
                pool[place] = input;
            }
        }
    }
    let line = format!(
        "fuzz {target}: {} executions in {:.1} s, {} accepted, {} inputs in the corpus, nothing found\n",
        runs.count,
        began.elapsed().as_secs_f64(),
        runs.accepted,
        kept.len()
    );
    // As in `seed`: also where the test passes.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Where the inputs of a target are kept.
pub fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

fn read(folder: &Path) -> Vec<Vec<u8>> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} has no input; put at least one valid one there", folder.display());
    paths.iter().map(|path| fs::read(path).expect("an input can be read")).collect()
}

struct Runs<'a, F> {
    target: &'a str,
    folder: &'a Path,
    accepts: F,
    current: Option<fs::File>,
    count: u64,
    accepted: u64,
}

impl<F: Fn(&[u8]) -> bool> Runs<'_, F> {
    fn run(&mut self, input: &[u8]) -> bool {
        if let Some(file) = &self.current {
            use std::os::unix::fs::FileExt;
            file.set_len(0).and_then(|()| file.write_all_at(input, 0)).expect("the input can be written");
        }
        self.count += 1;
        let (failing, began) = (Failing { target: self.target, folder: self.folder, input }, Instant::now());
        let accepted = (self.accepts)(input);
        assert!(began.elapsed() < SLOW, "one input took {:.1?}", began.elapsed());
        drop(failing);
        self.accepted += u64::from(accepted);
        accepted
    }
}

/// Keeps the input if the parser panics.
struct Failing<'a> {
    target: &'a str,
    folder: &'a Path,
    input: &'a [u8],
}

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let path = self.folder.join(name(self.input));
            let written = fs::write(&path, self.input);
            let kept = written.map_or_else(
                |error| format!("it could not be kept: {error}"),
                |()| format!("kept as {}", path.display()),
            );
            let line = format!(
                "fuzz {}: FOUND an input that fails, {kept}: {}\n",
                self.target,
                self.input.escape_ascii()
            );
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
}

/// The file of an input that was found.
pub fn name(input: &[u8]) -> String {
    format!("found-{}", &hex_digest(input)[..12])
}

fn mutated(random: &mut fastrand::Rng, pool: &[Vec<u8>]) -> Vec<u8> {
    let mut input = pool[random.usize(..pool.len())].clone();
    for _ in 0..1 << random.u32(0..4) {
        mutate(random, &mut input, pool);
    }
    input.truncate(LONGEST);
    input
}

fn mutate(random: &mut fastrand::Rng, input: &mut Vec<u8>, pool: &[Vec<u8>]) {
    let at = random.usize(..=input.len());
    // Short ranges are more likely.
    let longest = 1 << random.u32(0..10);
    let to = (at + random.usize(0..=longest)).min(input.len());
    match random.u32(0..10) {
        0 if at < input.len() => input[at] ^= 1 << random.u32(0..8),
        1 if at < input.len() => input[at] = random.u8(..),
        2 if at < input.len() => input[at] = BYTES[random.usize(..BYTES.len())],
        3 => input.insert(at, BYTES[random.usize(..BYTES.len())]),
        4 => drop(input.drain(at..to)),
        5 => input.truncate(at),
        6 => {
            let most = 1 << random.u32(0..8);
            let piece = input[at..to].repeat(random.usize(1..=most).min(1 + LONGEST / longest));
            let place = random.usize(..=input.len());
            input.splice(place..place, piece);
        }
        7 => {
            let word = WORDS[random.usize(..WORDS.len())].bytes();
            input.splice(at..at, word);
        }
        8 => {
            // A word of letters or digits as a whole, such as a number, a time or the name of a field.
            let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte >= 0x80;
            let start = input[..at].iter().rposition(|byte| !is_word(byte)).map_or(0, |before| before + 1);
            let end =
                input[at..].iter().position(|byte| !is_word(byte)).map_or(input.len(), |length| at + length);
            let other = &pool[random.usize(..pool.len())];
            let words: Vec<&[u8]> =
                other.split(|byte| !is_word(byte)).filter(|word| !word.is_empty()).collect();
            let word = if words.is_empty() || random.bool() {
                WORDS[random.usize(..WORDS.len())].as_bytes()
            } else {
                words[random.usize(..words.len())]
            };
            input.splice(start..end, word.iter().copied());
        }
        _ => {
            let other = &pool[random.usize(..pool.len())];
            let from = random.usize(..=other.len());
            let until = (from + longest).min(other.len());
            input.splice(at..to, other[from..until].iter().copied());
        }
    }
    input.truncate(LONGEST);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_inputs_and_they_stay_short() {
        let pool = vec![br#"{"a": 17, "b": ["x", "y"]}"#.to_vec(), b"-".to_vec(), Vec::new()];
        let inputs = |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            (0..2_000).map(|_| mutated(&mut random, &pool)).collect::<Vec<_>>()
        };
        let first = inputs(7);
        assert_eq!(first, inputs(7));
        assert_ne!(first, inputs(8));
        assert!(first.iter().all(|input| input.len() <= LONGEST));
        assert!(
            first.iter().filter(|input| serde_json::from_slice::<serde_json::Value>(input).is_ok()).count()
                > 20
        );
    }

    /// A parser with a defect that only a mutation reaches.
    #[test]
    fn a_defect_is_found_and_its_input_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let found = std::panic::catch_unwind(|| {
            let accepts = |input: &[u8]| {
                assert!(!input.windows(3).any(|part| part == b"-1}"), "the defect");
                true
            };
            let mut runs =
                Runs { target: "t", folder: folder.path(), accepts, current: None, count: 0, accepted: 0 };
            let (mut random, pool) = (fastrand::Rng::with_seed(1), vec![b"{7}".to_vec()]);
            for _ in 0..100_000 {
                let input = mutated(&mut random, &pool);
                runs.run(&input);
            }
        });
        assert!(found.is_err(), "the defect was not found");
        let kept = read(folder.path());
        assert_eq!(kept.len(), 1);
        assert!(kept[0].windows(3).any(|part| part == b"-1}"));
    }
}
