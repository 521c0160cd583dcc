//! `volmedic doctor --bundle`: one archive with what another person needs to understand a problem. Secrets are never read, and
//! values that may be one are masked. Bounded in size and in time, whatever the size of the cluster.

mod archive;
mod fields;
mod kinds;
mod mask;
mod names;
mod objects;
mod redact;

use std::path::Path;
use std::time::Duration;

use http::Request;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use volmedic_view::render::{Paint, json as to_json};

use super::findings::{Report, many};
use super::text;
use crate::look::{Reach, Unread, innermost};
use kinds::{KINDS, Kind, Of};
use names::Names;
use objects::{Own, Selection};
use redact::Replacer;

/// Maximum number of objects of one kind, apart from pods that run Volmedic, of which there may be as many again.
const OBJECTS: usize = 5_000;
const PAGE: usize = 500;
/// Half a million objects.
const MAX_PAGES: usize = 1_000;
/// Of each container's log, the newest lines and the newest bytes.
const LINES: usize = 5_000;
const BYTES: usize = 2 << 20;
/// Maximum number of pods whose logs are read, and of bytes of all logs.
const PODS: usize = 50;
const ALL_BYTES: usize = 64 << 20;
/// For the whole archive.
const LIMIT: Duration = Duration::from_mins(10);
const TRIES: u32 = 3;

const REPLACED: &str = "Replaced by numbers: namespaces, claims, PersistentVolumes, classes, nodes, pods and \
    their owners, service accounts, registries, volume handles and attributes, IP addresses. Not replaced: CSI \
    drivers, versions, UIDs, times, and names in logs and messages of objects that were deleted.";

/// What was read.
struct Bundle<'a> {
    reach: &'a Reach,
    redact: bool,
    end: Instant,
    objects: Vec<(Selection, Vec<Value>)>,
    own: Vec<Own>,
    logs: Vec<Log>,
    gaps: Vec<Gap>,
    names: Names,
}

struct Log {
    /// Namespace, pod and container.
    of: [String; 3],
    is_previous: bool,
    text: String,
}

/// What is not in the archive, and why.
struct Gap {
    what: String,
    why: String,
}

/// Writes the archive; the answer is a sentence about it.
pub(super) async fn write(
    reach: &Reach,
    report: &Report,
    file: &Path,
    redact: bool,
) -> anyhow::Result<String> {
    let mut bundle = Bundle {
        reach,
        redact,
        end: Instant::now() + LIMIT,
        objects: Vec::new(),
        own: Vec::new(),
        logs: Vec::new(),
        gaps: Vec::new(),
        names: Names::default(),
    };
    for kind in KINDS {
        bundle.read_objects(kind).await;
    }
    bundle.read_logs().await;
    let gaps = bundle.gaps.len();
    let unknown = bundle.names.unknown().join(", ");
    let size = archive::save(&bundle.files(report)?, file)?;
    let mut sentences = vec![format!("wrote {}, {} KiB.", file.display(), size.div_ceil(1024))];
    if gaps > 0 {
        sentences.push(format!("{} missing, see not-read.txt.", many(gaps, "part is", "parts are")));
    }
    if redact && !unknown.is_empty() {
        sentences.push(format!(
            "Logs and messages are left out: not all names are known ({unknown}), so they cannot be replaced there."
        ));
    }
    sentences.push(if redact {
        REPLACED.to_owned()
    } else {
        "Names are not replaced (--redact).".to_owned()
    });
    sentences.push("Read it before you pass it on.".to_owned());
    Ok(sentences.join(" "))
}

impl Bundle<'_> {
    fn gap(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.gaps.push(Gap { what: what.into(), why: why.into() });
    }

    async fn read_objects(&mut self, kind: &'static Kind) {
        let selection = Selection::new(kind, self.redact);
        let mut items = Vec::new();
        let read = self.read_pages(&selection, &mut items).await;
        if let Err(why) = read {
            // A kind that the server does not have has no names.
            if kind.of == Of::Cluster && why != Unread::Missing {
                self.names.set_unknown(kind.file);
            }
            self.gap(kind.file, why.to_string());
        }
        self.objects.push((selection, items));
    }

    /// An error says why not all are read. Not all are kept.
    async fn read_pages(&mut self, selection: &Selection, items: &mut Vec<Value>) -> Result<(), Unread> {
        let kind = selection.kind;
        let (mut token, mut left_out) = (String::new(), 0);
        // Pods that run Volmedic may be among the last, and every name is needed to replace it.
        let needs_all = kind.file == "pods" || (self.redact && kind.of == Of::Cluster);
        for _ in 0..MAX_PAGES {
            let page = self.get(&kind.path(PAGE, &token)).await?;
            let page = serde_json::from_str::<Value>(&page);
            let mut page = page.map_err(|_| Unread::Failed("the answer is not JSON".to_owned()))?;
            let objects = page.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take);
            let objects = objects.ok_or_else(|| Unread::Failed("the answer is not a list".to_owned()))?;
            for object in objects {
                left_out += usize::from(!self.take(selection, object, items));
            }
            page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
            if token.is_empty() || (left_out > 0 && !needs_all) {
                if left_out > 0 {
                    self.gap(kind.file, format!("only {} are included", items.len()));
                }
                return Ok(());
            }
        }
        Err(Unread::Failed(format!("there are more than {}", MAX_PAGES * PAGE)))
    }

    /// Whether an object is kept, or is none of this kind.
    fn take(&mut self, selection: &Selection, mut object: Value, items: &mut Vec<Value>) -> bool {
        if !selection.includes(&object) {
            return true;
        }
        if self.redact {
            self.names.note(selection.kind, &object);
        }
        let own = if selection.kind.plural == "pods" { Own::of(&object) } else { None };
        let limit = if own.is_some() { 2 * OBJECTS } else { OBJECTS };
        if items.len() >= limit {
            return false;
        }
        self.own.extend(own);
        mask::object(&mut object);
        selection.keep(&mut object);
        items.push(object);
        true
    }

    async fn read_logs(&mut self) {
        let mut own = std::mem::take(&mut self.own);
        own.sort();
        own.dedup();
        if own.len() > PODS {
            self.gap("logs", format!("only of {PODS} pods of {}", own.len()));
        }
        let mut left = ALL_BYTES;
        for Own { namespace, pod, containers, .. } in own.into_iter().take(PODS) {
            for container in containers {
                for is_previous in [false, true] {
                    let what = format!("the log of {namespace}/{pod} {container}");
                    if left < BYTES && is_previous {
                        continue;
                    }
                    if left < BYTES {
                        self.gap(what, format!("all logs together have {} MiB already", ALL_BYTES >> 20));
                        continue;
                    }
                    let query = format!("tailLines={LINES}&limitBytes={BYTES}&previous={is_previous}");
                    let path = format!(
                        "/api/v1/namespaces/{namespace}/pods/{pod}/log?container={container}&{query}"
                    );
                    match self.get(&path).await {
                        Ok(text) => {
                            let text = mask::text(&text);
                            left = left.saturating_sub(text.len());
                            if self.redact {
                                self.names.note_log(&text);
                            }
                            let of = [namespace.clone(), pod.clone(), container.clone()];
                            self.logs.push(Log { of, is_previous, text });
                        }
                        // Most containers never ended before.
                        Err(_) if is_previous => {}
                        Err(Unread::Forbidden) => self.gap(what, "you may not read it (get on pods/log)"),
                        Err(Unread::Missing) => self.gap(what, "there is none"),
                        Err(Unread::Failed(why)) => self.gap(what, why),
                    }
                }
            }
        }
    }

    async fn get(&self, path: &str) -> Result<String, Unread> {
        let mut tries = 1;
        loop {
            let left = self.end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Unread::Failed(format!("not read within {} min", LIMIT.as_secs() / 60)));
            }
            let why = match get(&self.reach.client, path, self.reach.deadline.min(left), self.redact).await {
                Err(Unread::Failed(why)) if tries < TRIES => why,
                answer => return answer,
            };
            tracing::debug!("{path}: {why}; retrying");
            sleep(Duration::from_millis(300) * tries).await;
            tries += 1;
        }
    }

    /// The files of the archive.
    fn files(self, report: &Report) -> anyhow::Result<Vec<(String, String)>> {
        let replacer = if self.redact { Some(Replacer::new(self.names)?) } else { None };
        let replaced = |text: String| replacer.as_ref().map_or(text.clone(), |names| names.apply(&text));
        let redacted = replacer.as_ref().map(|names| names.report(report));
        let report = redacted.as_ref().unwrap_or(report);
        let about = json!({
            "volmedic": env!("CARGO_PKG_VERSION"),
            "kubernetes": report.server,
            "at": Timestamp::now(),
            "redacted": self.redact,
        });
        let mut files = vec![
            ("about.json".to_owned(), to_json(&about)?),
            ("doctor.txt".to_owned(), text::compose(report, Paint { colour: false, width: None })),
            ("doctor.json".to_owned(), to_json(report)?),
        ];
        for (selection, mut items) in self.objects {
            if let Some(names) = &replacer {
                for object in &mut items {
                    names.object(object);
                }
            }
            files.push((format!("objects/{}.json", selection.kind.file), to_json(&items)?));
        }
        for Log { of, is_previous, text } in self.logs {
            let end = if is_previous { "previous.log" } else { "log" };
            let text = match &replacer {
                Some(names) => names.log(&text),
                None => Some(text),
            };
            if let Some(text) = text {
                files.push((format!("logs/{}.{end}", of.map(&replaced).join("_")), text));
            }
        }
        let gaps = self.gaps.into_iter().map(|Gap { what, why }| format!("{}: {why}\n", replaced(what)));
        let gaps: String = gaps.collect();
        let gaps = if gaps.is_empty() { "Everything was read.\n".to_owned() } else { gaps };
        files.push(("not-read.txt".to_owned(), gaps));
        Ok(files)
    }
}

/// The text of an answer. A reason may have an address or a sentence of the server, but not where names are replaced.
async fn get(client: &Client, path: &str, deadline: Duration, redact: bool) -> Result<String, Unread> {
    let request = Request::get(path).body(Vec::new());
    let request = request.map_err(|error| Unread::Failed(error.to_string()))?;
    let detail = |text: String| if redact { String::new() } else { format!(": {text}") };
    match timeout(deadline, client.request_text(request)).await {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(kube::Error::Api(status))) => Err(match status.code {
            401 | 403 => Unread::Forbidden,
            400 | 404 => Unread::Missing,
            code => {
                Unread::Failed(format!("the API server answers {code}{}", detail(status.message.clone())))
            }
        }),
        Ok(Err(error)) => Err(Unread::Failed(format!("the request failed{}", detail(innermost(&error))))),
        Err(_) => Err(Unread::Failed(format!("no answer within {} s", deadline.as_secs()))),
    }
}
