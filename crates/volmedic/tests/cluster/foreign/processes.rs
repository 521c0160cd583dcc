//! The processes of a pod's container, as the host sees them.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::stage::Stage;

/// Those with this program name in a container of a pod. They are found by the container's id in their control group, so
/// nothing else on the machine is ever meant.
pub(super) fn find(stage: &Stage, namespace: &str, pod: &str, container: &str, program: &str) -> Vec<i32> {
    let path = format!("jsonpath={{.status.containerStatuses[?(@.name==\"{container}\")].containerID}}");
    let id = stage.kubectl(&["get", "pod", pod, "-n", namespace, "-o", &path]);
    let id = id.rsplit('/').next().filter(|id| id.len() == 64).unwrap_or_else(|| panic!("{id:?} is no id"));
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let read = |number: &i32, file: &str| fs::read_to_string(format!("/proc/{number}/{file}"));
    // The kernel keeps fifteen letters of a name.
    let short = &program[..program.len().min(15)];
    let is_it = |number: &i32| {
        read(number, "comm").is_ok_and(|name| name.trim_end() == short)
            && read(number, "cgroup").is_ok_and(|groups| groups.contains(id))
    };
    numbers.filter(is_it).collect()
}

pub(super) fn signal(processes: &[i32], signal: Signal) {
    assert!(!processes.is_empty(), "there is no process to send {signal:?} to");
    for number in processes {
        kill_process(Pid::from_raw(*number).unwrap(), signal).unwrap();
    }
}
