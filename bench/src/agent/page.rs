//! The figures, for the terminal and as a page for the documentation.

use std::fmt::Write as _;
use std::time::Duration;

use super::measure::{DEADLINE, HELPERS, INTERVAL, Rest, STUCK};
use super::node::HUNG;
use super::{Hang, Outcome};
use crate::audit;

const BUDGET_VOLUMES: usize = 1000;
const BUDGET_RESIDENT: u64 = 30 << 20;
/// Of one check of one volume, with the helper's.
const BUDGET_CPU: Duration = Duration::from_micros(400);

const COLUMNS: [&str; 11] = [
    "volumes",
    "resident MiB",
    "of that own MiB",
    "peak MiB",
    "CPU ms/pass",
    "helpers' CPU ms/pass",
    "bare loop's CPU ms/pass",
    "times the bare loop",
    "most helpers",
    "their own MiB",
    "first pass s",
];

/// One line, for who waits.
pub(super) fn line(rest: &Rest) -> String {
    let each = COLUMNS.iter().zip(cells(rest)).map(|(column, cell)| format!("{column}: {cell}"));
    format!("{}; asked at rest: {}", each.collect::<Vec<_>>().join("; "), audit::show(&rest.asked))
}

fn cells(rest: &Rest) -> Vec<String> {
    vec![
        rest.volumes.to_string(),
        mib(rest.memory.resident),
        mib(rest.memory.own),
        mib(rest.memory.peak),
        milliseconds(rest.cpu_per_pass),
        milliseconds(rest.helpers_cpu_per_pass),
        format!("{:.1}", rest.bare_cpu_per_pass.as_secs_f64() * 1000.0),
        format!("{:.0}", of_checks(rest).as_secs_f64() / rest.bare_cpu_per_pass.as_secs_f64()),
        rest.helpers.most.to_string(),
        mib(rest.helpers.memory),
        format!("{:.1}", rest.first_pass.as_secs_f64()),
    ]
}

/// The processor time of a pass, in all.
fn of_checks(rest: &Rest) -> Duration {
    rest.cpu_per_pass + rest.helpers_cpu_per_pass
}

pub(super) fn figures(outcome: &Outcome) -> String {
    let mut text = format!("| {} |\n|{}\n", COLUMNS.join(" | "), "---:|".repeat(COLUMNS.len()));
    for rest in &outcome.rest {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {} |", cells(rest).join(" | "));
    }
    text.push_str("\nAsked of the API server while nothing changed:\n\n");
    for rest in &outcome.rest {
        let _ = writeln!(
            text,
            "- {} volumes: {} in {:.1} passes",
            rest.volumes,
            audit::show(&rest.asked),
            rest.passes
        );
    }
    let _ = write!(text, "\n{}\n{}", of_hang(&outcome.hang), budgets(outcome));
    text
}

fn of_hang(hang: &Hang) -> String {
    let Hang { volumes, hung_seen, others_seen, recovered, reaped, memory, peak_of_all, helpers } = hang;
    format!(
        "With {HUNG} of {volumes} volumes hung:\n\n\
         - the hung ones were known as such {:.1} s after they hung\n\
         - a change of all {} others at the same time was seen on the last of them {:.1} s later\n\
         - at most {} helpers at any one time, with {} MiB to themselves\n\
         - the agent itself had {} MiB, and {} MiB at most while all others had changed at the same time\n\
         - all were reported healthy {:.1} s after they were, and the last helper had left them {:.1} s after that\n",
        hung_seen.as_secs_f64(),
        volumes - HUNG,
        others_seen.as_secs_f64(),
        helpers.most,
        mib(helpers.memory),
        mib(memory.resident),
        mib(*peak_of_all),
        recovered.as_secs_f64(),
        reaped.as_secs_f64()
    )
}

fn budgets(outcome: &Outcome) -> String {
    let mut kept = Vec::new();
    let mut promise = |is_so: bool, what: String| {
        kept.push(format!("- {}: {what}\n", if is_so { "kept" } else { "MISSED" }));
    };
    for rest in outcome.rest.iter().filter(|rest| rest.volumes == BUDGET_VOLUMES) {
        let resident = rest.memory.resident;
        promise(resident <= BUDGET_RESIDENT, format!("{} MiB resident at rest, at most 30", mib(resident)));
        let budget = BUDGET_CPU * u32::try_from(BUDGET_VOLUMES).unwrap_or(u32::MAX);
        let (took, most) = (milliseconds(of_checks(rest)), milliseconds(budget));
        promise(
            of_checks(rest) <= budget,
            format!("{took} ms of CPU for a pass, helpers included; at most {most}"),
        );
        let asked = audit::show(&rest.asked);
        promise(
            rest.asked.is_empty(),
            format!("asked of the API server at rest: {asked}; it should be none"),
        );
    }
    let hang = &outcome.hang;
    if hang.volumes == BUDGET_VOLUMES {
        let resident = hang.memory.resident;
        promise(
            resident <= BUDGET_RESIDENT,
            format!("{} MiB resident while {HUNG} hang, at most 30", mib(resident)),
        );
        let (seen, others) = (hang.others_seen.as_secs_f64(), hang.volumes - HUNG);
        // A check that begins in time also has to end, and be written down.
        promise(
            hang.others_seen <= INTERVAL + INTERVAL / 10,
            format!("the other {others} checked in {seen:.1} s, at most the interval and a tenth of it"),
        );
        let most = hang.helpers.most;
        promise(
            most <= HELPERS + HUNG,
            format!("{most} helpers, at most {HELPERS} and one for each that hangs"),
        );
    }
    if kept.is_empty() {
        return String::new();
    }
    format!("What is meant to be kept with {BUDGET_VOLUMES} volumes:\n\n{}", kept.concat())
}

pub(super) fn page(outcome: &Outcome) -> String {
    format!(
        "# What the agent takes\n\n\
         Made by `{}` on a machine with {}, with a real API server on the same machine. Do not edit; run it again.\n\n\
         The agent runs as a process of its own and checks every volume every {} s, which by default it does every \
         minute, with a deadline of {} s and at most {HELPERS} helpers beside {STUCK} stuck ones. Volumes are bind mounts, \
         staged and published as the kubelet does it, ten to a pod: {HUNG} of file systems in userspace, each with a \
         process of its own, all others of tmpfs and of ext4 on a loop device. A *pass* is one check of every volume. *Own* \
         memory is what is not pages of the program's file, which all of its processes share. Helpers are the processes in \
         which volumes are touched; *their own* memory is what all of them together have written to, at most. The *bare \
         loop* only calls statfs, opendir and readdir on the same mounts, one after the other in one process. To hang, the \
         processes behind the {HUNG} file systems are stopped; to change all others at the same time, these become full. \
         Requests are from the API server's audit log.\n\n{}",
        outcome.made_by,
        outcome.machine,
        INTERVAL.as_secs(),
        DEADLINE.as_secs(),
        figures(outcome)
    )
}

#[expect(clippy::cast_precision_loss, reason = "figures for a person, with one decimal")]
fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

fn milliseconds(time: Duration) -> String {
    format!("{:.0}", time.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::super::measure::Helpers;
    use super::*;
    use crate::audit::Requests;
    use crate::machine::Machine;
    use crate::process::Memory;

    fn outcome(resident: u64, cpu: Duration, asked: Requests, others_seen: Duration, most: usize) -> Outcome {
        let memory = Memory { resident, own: resident / 2, peak: resident };
        let helpers = Helpers { most, memory: 0 };
        let time = Duration::from_secs(1);
        let rest = Rest {
            volumes: BUDGET_VOLUMES,
            first_pass: time,
            memory,
            cpu_per_pass: cpu,
            helpers_cpu_per_pass: cpu,
            bare_cpu_per_pass: cpu / 20,
            helpers,
            passes: 2.0,
            asked,
        };
        let hang = Hang {
            volumes: BUDGET_VOLUMES,
            hung_seen: time,
            others_seen,
            recovered: time,
            reaped: time,
            memory,
            peak_of_all: resident,
            helpers,
        };
        Outcome { machine: Machine::this(), made_by: "a test".to_owned(), rest: vec![rest], hang }
    }

    #[test]
    fn what_is_kept_and_what_is_missed_is_distinguished() {
        let cpu = Duration::from_millis(200);
        let kept = budgets(&outcome(30 << 20, cpu, Requests::new(), INTERVAL, HELPERS + HUNG));
        assert_eq!((kept.matches("- kept: ").count(), kept.matches("MISSED").count()), (6, 0), "{kept}");
        let asked = Requests::from([(("create".to_owned(), "events".to_owned()), 1)]);
        let missed = budgets(&outcome(31 << 20, cpu * 2, asked, INTERVAL * 2, HELPERS + HUNG + 1));
        assert_eq!(
            (missed.matches("- kept: ").count(), missed.matches("MISSED").count()),
            (0, 6),
            "{missed}"
        );
    }
}
