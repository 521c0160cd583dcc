//! The chart's README, made from the comments of its values.yaml.

use std::fmt::Write as _;

const HEAD: &str = "\
<!-- Made by `cargo xtask chart` from values.yaml. Edits here are overwritten. -->
# The Volmedic chart

Watches the health of Kubernetes volumes and heals them. The chart installs the hub, the agents, their rights and policies, and the
resources VolumeHealth and NodeVolumeHealth. How to build the image and the chart, and how to install them:
[docs/install.md](../../docs/install.md).

```sh
volmedic doctor --pre                              # which of these values the cluster needs
helm install volmedic volmedic-VERSION.tgz --namespace volmedic --wait
helm test volmedic --namespace volmedic            # runs `volmedic doctor` in the cluster
helm uninstall volmedic --namespace volmedic       # keeps VolumeHealth and NodeVolumeHealth and what they store
```

The namespace must allow agents to mount host directories: `kubectl apply -f deploy/namespace.yaml` creates it so. Names are fixed,
so there is one installation per cluster. Unknown values are refused.
";

/// A value, or a group of values without one.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    path: Vec<String>,
    value: Option<String>,
    about: String,
}

/// The README for the text of a values.yaml and the chart's version.
pub(super) fn make(values: &str, version: &str) -> String {
    let mut out = HEAD.replace("VERSION", version);
    let mut is_table = false;
    for entry in entries(values) {
        let Entry { path, value, about } = entry;
        let top = path.len() == 1;
        match value {
            None if top => {
                let _ = write!(out, "\n## {}\n", path[0]);
                if !about.is_empty() {
                    let _ = write!(out, "\n{about}\n");
                }
                is_table = false;
                continue;
            }
            Some(_) if top => {
                let _ = write!(out, "\n## {}\n", path[0]);
                is_table = false;
            }
            _ => {}
        }
        if !is_table {
            out.push_str("\n| value | default | |\n|---|---|---|\n");
            is_table = true;
        }
        let value = value.map(|value| format!("`{}`", escaped(&value))).unwrap_or_default();
        let _ = writeln!(out, "| `{}` | {value} | {} |", path.join("."), escaped(&about));
    }
    out
}

/// A bar would end the cell of a table.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

/// Keys in their order, each with the comment above it.
fn entries(values: &str) -> Vec<Entry> {
    let mut entries = Vec::<Entry>::new();
    let mut above: Vec<(usize, String)> = Vec::new();
    let mut comment = Vec::<&str>::new();
    for line in values.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if let Some(said) = text.strip_prefix('#') {
            comment.push(said.trim());
            continue;
        }
        let key = text.split_once(':').filter(|(key, _)| key.chars().all(|c| c.is_ascii_alphanumeric()));
        let Some((key, value)) = key else {
            // Text at the head of the file is about no key.
            comment.clear();
            continue;
        };
        above.retain(|(outer, _)| *outer < indent);
        let path = above.iter().map(|(_, key)| key.clone()).chain([key.to_owned()]).collect();
        above.push((indent, key.to_owned()));
        let (value, beside) = match value.split_once(" #") {
            Some((value, beside)) => (value.trim(), beside.trim()),
            None => (value.trim(), ""),
        };
        if !beside.is_empty() {
            comment.push(beside);
        }
        let value = (!value.is_empty()).then(|| value.to_owned());
        entries.push(Entry { path, value, about: comment.join(" ") });
        comment.clear();
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_path_its_default_and_the_comment_above_it() {
        let values = "# About the file.\n\n# A group.\n# Of two.\na:\n  # First.\n  x: {b: [c]}\n  y:\n    # Deep: a|b.\n    z: \"\" # beside\n# Last.\nlast: []\n";
        let made = make(values, "9.9.9");
        let tables = made.split_once("## a\n").unwrap().1;
        assert_eq!(
            tables,
            "\nA group. Of two.\n\n| value | default | |\n|---|---|---|\n| `a.x` | `{b: [c]}` | First. |\n| `a.y` |  |  |\n\
             | `a.y.z` | `\"\"` | Deep: a\\|b. beside |\n\n## last\n\n| value | default | |\n|---|---|---|\n| `last` | `[]` | Last. |\n"
        );
        assert!(made.contains("volmedic-9.9.9.tgz"), "{made}");
        assert!(!made.contains("About the file"), "{made}");
    }
}
