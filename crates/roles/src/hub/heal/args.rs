//! The command line of healing. Every guard has a flag, and every default is on the careful side.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgGroup;
use jiff::SignedDuration;
use volmedic_heal::healer::{Filters, Options, Trust, Unverified};
use volmedic_heal::{Mode, Policy, Recreate, ReportTrust, Rules};

use volmedic_runtime::flags::{duration, positive};

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Healing")]
#[command(group(ArgGroup::new("heal_remedy").args(["heal_relays", "heal_recreate_pods"]).multiple(true)))]
#[allow(clippy::struct_field_names, reason = "the fields are the flags, and these begin alike")]
pub(crate) struct HealArgs {
    /// Heal volumes: through their node plugins, which needs --heal-relays, by recreating pods, which needs
    /// --heal-recreate-pods, or both. See docs/healing.md.
    #[arg(long, requires = "heal_remedy")]
    heal: bool,
    /// Mode where neither claim, namespace nor storage class sets one: off, observe, approve or auto.
    #[arg(long, default_value_t = Mode::Observe, value_name = "MODE")]
    heal_mode: Mode,
    /// Highest mode that any annotation or rule can set.
    #[arg(long, default_value_t = Mode::Auto, value_name = "MODE")]
    heal_ceiling: Mode,
    /// Mode of a namespace. May be given several times.
    #[arg(long, value_parser = rule, value_name = "NAMESPACE=MODE")]
    heal_namespace_mode: Vec<(String, Mode)>,
    /// Mode of a storage class. May be given several times.
    #[arg(long, value_parser = rule, value_name = "CLASS=MODE")]
    heal_class_mode: Vec<(String, Mode)>,
    /// Time for which a volume must be unhealthy before it is healed.
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    heal_debounce: Duration,
    /// Pause after the first attempt; it doubles with every further attempt.
    #[arg(long, default_value = "30s", value_parser = positive, value_name = "DURATION")]
    heal_pause: Duration,
    /// Longest pause between two attempts.
    #[arg(long, default_value = "1h", value_parser = positive, value_name = "DURATION")]
    heal_longest_pause: Duration,
    /// Time after a successful heal in which the volume is not healed again.
    #[arg(long, default_value = "2m", value_parser = duration, value_name = "DURATION")]
    heal_cooldown: Duration,
    /// Number of attempts without lasting success after which the healer gives up.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    heal_tries: u32,
    /// Time for which a volume must stay healthy before its attempts are counted from 1 again.
    #[arg(long, default_value = "30m", value_parser = positive, value_name = "DURATION")]
    heal_steady: Duration,
    /// Interval between two checks of a volume that waits for a person's decision or change.
    #[arg(long, default_value = "30s", value_parser = positive, value_name = "DURATION")]
    heal_look_again: Duration,
    /// Time for which a person's consent is valid.
    #[arg(long, default_value = "1h", value_parser = positive, value_name = "DURATION")]
    heal_consent: Duration,
    /// Maximum number of concurrent heals on one node.
    #[arg(long, default_value_t = 2, value_parser = count(1), value_name = "N")]
    heal_per_node: usize,
    /// Maximum number of concurrent heals in the cluster.
    #[arg(long, default_value_t = 10, value_parser = count(1), value_name = "N")]
    heal_at_once: usize, // tidy-ok: the name of a flag
    /// Percentage of a driver's volumes, or of all volumes, above which unhealthy volumes stop all healing.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=100), value_name = "PERCENT")]
    heal_brake_percent: u32,
    /// Number of unhealthy volumes below which healing is never stopped as a whole.
    #[arg(long, default_value_t = 10, value_parser = count(1), value_name = "N")]
    heal_brake_least: usize,
    /// Deadline of one heal, from the request to the relay to its answer.
    #[arg(long, default_value = "3m", value_parser = positive, value_name = "DURATION")]
    heal_deadline: Duration,
    /// Allow evicting the pods of unhealthy volumes, so that they are mounted again. See docs/healing.md.
    #[arg(long, requires = "heal")]
    heal_recreate_pods: bool,
    /// Mode of recreating pods where neither claim, namespace nor storage class sets one.
    #[arg(long, default_value_t = Mode::Off, value_name = "MODE")]
    heal_recreate_mode: Mode,
    /// Highest mode of recreating pods that any annotation or rule can set.
    #[arg(long, default_value_t = Mode::Auto, value_name = "MODE")]
    heal_recreate_ceiling: Mode,
    /// Mode of recreating pods in a namespace. May be given several times.
    #[arg(long, value_parser = rule, value_name = "NAMESPACE=MODE")]
    heal_recreate_namespace_mode: Vec<(String, Mode)>,
    /// Mode of recreating pods for a storage class. May be given several times.
    #[arg(long, value_parser = rule, value_name = "CLASS=MODE")]
    heal_recreate_class_mode: Vec<(String, Mode)>,
    /// Time for which a volume must be unhealthy before its pods are recreated.
    #[arg(long, default_value = "1m", value_parser = duration, value_name = "DURATION")]
    heal_recreate_debounce: Duration,
    /// Number of attempts to recreate pods without lasting success after which the healer gives up.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    heal_recreate_tries: u32,
    /// Pause after the first attempt to recreate pods that failed; it doubles with every further attempt.
    #[arg(long, default_value = "10m", value_parser = positive, value_name = "DURATION")]
    heal_recreate_pause: Duration,
    /// Maximum number of volumes whose pods are recreated at the same time.
    #[arg(long, default_value_t = 2, value_parser = count(1), value_name = "N")]
    heal_recreate_at_once: usize, // tidy-ok: the name of a flag
    /// Time for which an eviction that is refused, as by a PodDisruptionBudget, is requested again in one attempt.
    #[arg(long, default_value = "2m", value_parser = duration, value_name = "DURATION")]
    heal_recreate_patience: Duration,
    /// Deadline of one attempt, from the first eviction to a healthy volume under a new pod.
    #[arg(long, default_value = "10m", value_parser = positive, value_name = "DURATION")]
    heal_recreate_deadline: Duration,
    /// Time for which no report may call the volume unhealthy under its new pod, where the agent does not report which volumes
    /// it has probed.
    #[arg(long, default_value = "90s", value_parser = duration, value_name = "DURATION")]
    heal_recreate_settle: Duration,
    /// Further kinds of owners that re-create their pods, as Kind.group.
    #[arg(long, value_delimiter = ',', value_name = "KINDS")]
    heal_recreate_owners: Vec<String>,
    /// Drivers whose volumes are healed. Default: all.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    heal_drivers: Vec<String>,
    /// Storage classes whose volumes are healed. Default: all.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    heal_classes: Vec<String>,
    /// Namespaces whose claims are healed. Default: all.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    heal_namespaces: Vec<String>,
    /// Values of the volume attribute `mounter` that are healed. Default: all.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    heal_mounters: Vec<String>,
    /// Call the relays in the agents, so that node plugins heal volumes. Each relay must show the certificate that its
    /// CSIAddonsNode names.
    #[arg(long)]
    heal_relays: bool,
    /// Token of this hub for all relays, read again for every call; a token that the API server accepts is refused. Relays must
    /// run with --relay-audience of the same audience. Default: a token that the API server makes for each node.
    #[arg(long, requires = "heal_relays", value_name = "FILE")]
    heal_relay_token_file: Option<PathBuf>,
    /// Namespaces whose relays are trusted. Default: the agents' namespace.
    #[arg(long, value_delimiter = ',', value_name = "NAMESPACES")]
    heal_relay_namespaces: Vec<String>,
    /// Driver whose relays are called as csi-addons does: any server that answers is trusted and gets a token. Only for
    /// relays that run with --relay-csi-addons. May be given several times.
    #[arg(long, requires_all = ["heal_csi_addons_token_file", "heal_relays"], value_name = "DRIVER")]
    heal_relay_csi_addons: Vec<String>,
    /// Token that such relays get, with the audience volmedic-csi-addons; read again for every call. A token that the API
    /// server accepts is refused.
    #[arg(long, value_name = "FILE")]
    heal_csi_addons_token_file: Option<PathBuf>,
    /// For tests on one machine: call relays on loopback addresses, too.
    #[arg(long, hide = true)]
    heal_relay_loopback: bool,
}

/// What the healer runs with.
#[derive(Debug, Clone)]
pub(crate) struct HealConfig {
    pub(crate) options: Options,
    /// Which tokens relays get; `None` if no relay is called.
    pub(crate) trust: Option<Trust>,
}

impl HealConfig {
    /// Whether the hub requests tokens for its own account, instead of reading one from a file.
    pub(crate) fn requests_tokens(&self) -> bool {
        self.trust.as_ref().is_some_and(|trust| trust.token.is_none())
    }
}

impl HealArgs {
    /// `None` if nothing is to be healed.
    pub(crate) fn resolve(self, agent_namespace: &str) -> Option<HealConfig> {
        if !self.heal {
            return None;
        }
        let signed = |time: Duration| SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
        let boxed = |rules: Vec<(String, Mode)>| -> BTreeMap<Box<str>, Mode> {
            rules.into_iter().map(|(name, mode)| (name.into(), mode)).collect()
        };
        let set = |names: Vec<String>| -> BTreeSet<String> { names.into_iter().collect() };
        let mut owners = Recreate::default().owners;
        owners.extend(self.heal_recreate_owners.into_iter().map(Into::into));
        let recreate = Recreate {
            debounce: signed(self.heal_recreate_debounce),
            tries: self.heal_recreate_tries,
            first_pause: signed(self.heal_recreate_pause),
            budget: self.heal_recreate_at_once,
            patience: signed(self.heal_recreate_patience),
            deadline: signed(self.heal_recreate_deadline),
            settle: signed(self.heal_recreate_settle),
            owners,
        };
        let policy = Policy {
            node_healer: self.heal_relays,
            recreate: self.heal_recreate_pods.then_some(recreate),
            debounce: signed(self.heal_debounce),
            cooldown: signed(self.heal_cooldown),
            first_pause: signed(self.heal_pause),
            longest_pause: signed(self.heal_longest_pause.max(self.heal_pause)),
            tries: self.heal_tries,
            steady: signed(self.heal_steady),
            node_budget: self.heal_per_node,
            cluster_budget: self.heal_at_once,
            brake_percent: self.heal_brake_percent,
            brake_least: self.heal_brake_least,
            look_again: signed(self.heal_look_again),
            approval: signed(self.heal_consent),
            ..Policy::default()
        };
        let trusted_namespaces = match set(self.heal_relay_namespaces) {
            none if none.is_empty() => BTreeSet::from([agent_namespace.to_owned()]),
            some => some,
        };
        let drivers = set(self.heal_relay_csi_addons);
        let unverified = self.heal_csi_addons_token_file.map(|token| Unverified { drivers, token });
        Some(HealConfig {
            options: Options {
                policy,
                rules: Rules {
                    default: self.heal_mode,
                    namespaces: boxed(self.heal_namespace_mode),
                    classes: boxed(self.heal_class_mode),
                    ceiling: self.heal_ceiling,
                    reports: ReportTrust::default(),
                },
                recreate_rules: Rules {
                    default: self.heal_recreate_mode,
                    namespaces: boxed(self.heal_recreate_namespace_mode),
                    classes: boxed(self.heal_recreate_class_mode),
                    ceiling: self.heal_recreate_ceiling,
                    reports: ReportTrust::default(),
                },
                filters: Filters {
                    drivers: set(self.heal_drivers),
                    classes: set(self.heal_classes),
                    namespaces: set(self.heal_namespaces),
                    mounters: set(self.heal_mounters),
                },
                deadline: self.heal_deadline,
                trusted_namespaces,
                allow_loopback: self.heal_relay_loopback,
                ..Options::default()
            },
            trust: self.heal_relays.then(|| Trust {
                token: self.heal_relay_token_file,
                unverified: unverified.filter(|unverified| !unverified.drivers.is_empty()),
            }),
        })
    }
}

fn rule(text: &str) -> Result<(String, Mode), String> {
    let (name, mode) = text.split_once('=').ok_or("write it as in shop=auto")?;
    if name.is_empty() {
        return Err("a name must stand before the =".to_owned());
    }
    Ok((name.to_owned(), mode.parse().map_err(|error: volmedic_heal::NoMode| error.to_string())?))
}

fn count(least: u64) -> clap::builder::RangedU64ValueParser<usize> {
    clap::builder::RangedU64ValueParser::new().range(least..=100_000)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use volmedic_health::Remedy;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        heal: HealArgs,
    }

    fn parse(line: &str) -> Result<Option<HealConfig>, clap::Error> {
        let words = std::iter::once("hub").chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.heal.resolve("volmedic"))
    }

    #[test]
    fn nothing_is_healed_unless_it_is_asked_for() {
        assert!(parse("").unwrap().is_none());
        assert!(parse("--heal-relays").unwrap().is_none());
        assert!(parse("--heal").is_err());
        let HealConfig { options, trust } = parse("--heal --heal-relays").unwrap().unwrap();
        assert_eq!(options.rules.default, Mode::Observe);
        assert_eq!(options.trusted_namespaces, BTreeSet::from(["volmedic".to_owned()]));
        assert!(trust.unwrap().unverified.is_none() && !options.allow_loopback);
    }

    /// Recreating pods needs no relay and no token.
    #[test]
    fn pods_are_recreated_without_any_relay() {
        let config = parse("--heal --heal-recreate-pods").unwrap().unwrap();
        assert!(config.trust.is_none() && !config.requests_tokens());
        let has = |remedy| config.options.policy.has(remedy);
        assert!(has(Remedy::RecreatePods) && !has(Remedy::NodeHealer));
        let error = parse("--heal").unwrap_err().to_string();
        assert!(error.contains("--heal-relays") && error.contains("--heal-recreate-pods"), "{error}");
        for relays in ["--heal-relay-token-file=/t", "--heal-relay-csi-addons=x"] {
            let error = parse(&format!("--heal --heal-recreate-pods {relays}")).unwrap_err().to_string();
            assert!(error.contains("--heal-relays"), "{error}");
        }
    }

    /// The page says what the defaults are; the library says so too, and the flags repeat them.
    #[test]
    fn the_flags_have_the_defaults_of_the_library() {
        let HealConfig { options, .. } = parse("--heal --heal-relays").unwrap().unwrap();
        assert_eq!(format!("{:?}", options.policy), format!("{:?}", Policy::default()));
        assert_eq!(options.deadline, Options::default().deadline);
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/healing.md");
        let page = std::fs::read_to_string(page).unwrap();
        for argument in <Cli as clap::CommandFactory>::command().get_arguments() {
            let flag = format!("--{}", argument.get_long().unwrap_or("heal"));
            let shown = argument.is_hide_set() || page.contains(&format!("`{flag}`"));
            assert!(shown || flag == "--help", "docs/healing.md does not name {flag}");
        }
    }

    /// The hub's own token for the API server must never be what an unverified relay gets by default.
    #[test]
    fn relays_of_csi_addons_get_no_token_by_default() {
        let line = "--heal --heal-relays --heal-relay-csi-addons=d.example";
        let error = parse(line).unwrap_err().to_string();
        assert!(error.contains("--heal-csi-addons-token-file"), "{error}");
        let given = parse(&format!("{line} --heal-csi-addons-token-file=/t")).unwrap().unwrap();
        assert_eq!(given.trust.unwrap().unverified.unwrap().token, PathBuf::from("/t"));
    }

    #[test]
    fn pods_are_recreated_only_where_two_things_were_said() {
        let line = "--heal --heal-relays";
        let HealConfig { options, .. } = parse(line).unwrap().unwrap();
        assert!(options.policy.recreate.is_none());
        let HealConfig { options, .. } = parse(&format!("{line} --heal-recreate-pods")).unwrap().unwrap();
        let rules = &options.recreate_rules;
        assert_eq!(rules.ruling(None, "shop", Some("fuse")).mode, Mode::Off);
        assert_eq!(rules.ruling(Some("auto"), "shop", None).mode, Mode::Auto);
        assert_eq!(format!("{:?}", options.policy.recreate), format!("{:?}", Some(Recreate::default())));
        let more = "--heal-recreate-pods --heal-recreate-class-mode=fuse=auto --heal-recreate-ceiling=approve \
                    --heal-recreate-owners=GameServerSet.game.example.com";
        let HealConfig { options, .. } = parse(&format!("{line} {more}")).unwrap().unwrap();
        assert_eq!(options.recreate_rules.ruling(None, "shop", Some("fuse")).mode, Mode::Approve);
        let owners = options.policy.recreate.unwrap().owners;
        assert!(owners.contains("GameServerSet.game.example.com") && owners.contains("ReplicaSet.apps"));
        assert!(parse("--heal-recreate-pods").is_err());
    }

    #[test]
    fn rules_are_read_and_nonsense_is_refused() {
        let line = "--heal --heal-relays --heal-namespace-mode=db=approve --heal-namespace-mode=vms=off \
                    --heal-class-mode=fuse=auto --heal-ceiling=approve --heal-drivers=a,b";
        let HealConfig { options, .. } = parse(line).unwrap().unwrap();
        assert_eq!(options.rules.namespaces.len(), 2);
        assert_eq!(options.rules.ruling(None, "web", Some("fuse")).mode, Mode::Approve, "the ceiling");
        assert_eq!(options.filters.drivers.len(), 2);
        for wrong in
            ["--heal-mode=Auto", "--heal-namespace-mode=db", "--heal-class-mode==auto", "--heal-tries=0"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
