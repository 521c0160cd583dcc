//! The shape of the machine that measures: figures mean little without it.

use std::fmt;
use std::fs;

/// Cores and memory, and nothing that identifies the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Machine {
    cores: usize,
    memory: u64,
}

impl Machine {
    pub(crate) fn this() -> Self {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Self { cores, memory: field(&text, "MemTotal").unwrap_or_default() }
    }

    pub(crate) fn memory(self) -> u64 {
        self.memory
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cores, {} GiB of memory", self.cores, (self.memory + (1 << 29)) >> 30)
    }
}

/// A field such as `VmRSS:     1234 kB`, in bytes.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_by_their_whole_name() {
        let text = "VmRSSize:\t1 kB\nVmRSS:\t   12 kB\nThreads:\t3\n";
        assert_eq!(field(text, "VmRSS"), Some(12 << 10));
        assert_eq!(field(text, "Threads"), None, "it has no size");
        assert_eq!(field(text, "VmHWM"), None);
    }

    #[test]
    fn memory_is_rounded() {
        let machine = Machine { cores: 2, memory: (23 << 30) + (600 << 20) };
        assert_eq!(machine.to_string(), "2 cores, 24 GiB of memory");
    }
}
