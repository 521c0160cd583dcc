//! Somebody who uses a volume and never lets go of it: a process with open files, as a pod has.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use super::super::driver::PATIENCE;
use super::super::roles::USER;

/// Its life, in its own process. Any error ends it; so does the end of standard input.
pub(crate) fn run(arguments: &[String]) -> ! {
    let [folder, name] = arguments else { panic!("{arguments:?}") };
    if let Err(error) = use_volume(folder, name) {
        let _ = writeln!(io::stderr(), "somebody who uses a volume met an error: {error}");
        std::process::exit(1);
    }
    std::process::exit(0)
}

fn use_volume(folder: &str, name: &str) -> io::Result<()> {
    std::env::set_current_dir(folder)?;
    let mut log = File::options().create(true).append(true).open(name)?;
    // Read by its handle; then without a name as well.
    let deleted = Path::new(name).with_extension("deleted");
    let unnamed = File::options().create(true).truncate(true).read(true).write(true).open(&deleted)?;
    unnamed.write_all_at(name.as_bytes(), 0)?;
    fs::remove_file(&deleted)?;
    let ending = ends_with_input();
    for number in 0_u64.. {
        if ending.try_recv().is_ok() {
            break;
        }
        writeln!(log, "{number}")?;
        log.sync_data()?;
        let mut read = vec![0; name.len()];
        unnamed.read_exact_at(&mut read, 0)?;
        assert_eq!(read, name.as_bytes());
        // New names as well as old handles.
        let other = format!("{name}.{}", number % 10);
        fs::write(&other, number.to_string())?;
        assert_eq!(fs::read_to_string(&other)?, number.to_string());
        let mut names = fs::read_dir(".")?.collect::<io::Result<Vec<_>>>()?.into_iter();
        assert!(names.any(|entry| *entry.file_name() == *name));
        writeln!(io::stdout(), "{number}")?;
    }
    Ok(())
}

fn ends_with_input() -> Receiver<()> {
    let (sender, ending) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = io::stdin().read(&mut [0]);
        let _ = sender.send(());
    });
    ending
}

pub(crate) struct User {
    process: Child,
    numbers: Receiver<u64>,
    log: PathBuf,
    last: Option<u64>,
}

impl User {
    pub(crate) fn of(folder: &Path, name: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .arg(USER)
            .arg(folder)
            .arg(name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let numbers = numbers(process.stdout.take().unwrap());
        let mut user = Self { process, numbers, log: folder.join(name), last: None };
        user.goes_on();
        user
    }

    /// Waits until it has done more, after whatever it had done when this was asked.
    pub(crate) fn goes_on(&mut self) {
        while let Ok(number) = self.numbers.try_recv() {
            self.last = Some(number);
        }
        let until = self.last.map_or(5, |last| last + 5);
        let end = Instant::now() + PATIENCE;
        while self.last.is_none_or(|last| last < until) {
            let left = end.saturating_duration_since(Instant::now());
            let number = self.numbers.recv_timeout(left);
            self.last =
                Some(number.unwrap_or_else(|error| panic!("the user of the volume does not go on: {error}")));
        }
    }

    /// Ends it, and sees that it never met an error and lost nothing.
    pub(crate) fn end(mut self) {
        drop(self.process.stdin.take());
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < end, "the user of the volume does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "the user of the volume met an error: {status}");
        let written = fs::read_to_string(&self.log).unwrap();
        let lines: Vec<u64> = written.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(lines, (0..lines.len() as u64).collect::<Vec<_>>());
        assert!(lines.len() as u64 > self.last.unwrap());
    }

    /// Waits for its end by an error.
    pub(crate) fn fails(mut self) {
        let end = Instant::now() + PATIENCE;
        while self.process.try_wait().unwrap().is_none_or(|status| status.success()) {
            assert!(Instant::now() < end, "the user of the volume meets no error");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.process.kill();
        // Stuck in a volume it dies when that is unmounted, so it is not waited for.
        let _ = self.process.try_wait();
    }
}

fn numbers(output: ChildStdout) -> Receiver<u64> {
    let (sender, numbers) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else { break };
            if sender.send(line.parse().unwrap()).is_err() {
                break;
            }
        }
    });
    numbers
}
