//! `cargo xtask cluster`: a real Kubernetes on this machine, to try things against.

use std::fmt::Write as _;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use volmedic_testkit::Part;
use volmedic_testkit::cluster::{self, Name, Options, Status};
use volmedic_testkit::kubernetes::{self, Version};
use volmedic_testkit::{foreign, helm, sanity, sidecars};

use crate::say;

/// Run a real one-node Kubernetes on this machine
#[derive(clap::Args)]
#[command(
    after_help = "The programs are built from Go modules at the first start, which takes minutes, and kept in \
                        $VOLMEDIC_CACHE, else $XDG_CACHE_HOME/volmedic, else ~/.cache/volmedic. A node needs root."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
    /// Name of the cluster, if you want more than one
    #[arg(long, global = true, env = "VOLMEDIC_CLUSTER", default_value = "default")]
    name: Name,
}

#[derive(Subcommand)]
enum Action {
    /// Start a cluster; it stays until `down`
    Up {
        /// Start no node: etcd, API server, controller manager and scheduler only. Needs no root
        #[arg(long)]
        control_plane_only: bool,
        /// The release of Kubernetes
        #[arg(long, default_value_t = Version::DEFAULT)]
        version: Version,
    },
    /// Build Kubernetes and the other Go programs that tests start, if they are not in the cache yet
    Build {
        /// The release of Kubernetes
        #[arg(long, default_value_t = Version::DEFAULT)]
        version: Version,
    },
    /// Show which parts run and whether they are healthy; exit code 0 means that all are
    Status,
    /// Stop the cluster and remove everything of it
    Down,
    /// Show the end of a part's log: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, forward, containerd,
    /// kubelet
    Logs {
        /// The part
        part: Part,
        /// Number of lines
        #[arg(short = 'n', default_value_t = 50)]
        lines: usize,
    },
    /// Load an image into the node
    Load {
        /// An archive such as `docker save` and `cargo xtask dist` write
        archive: PathBuf,
    },
    /// Print the path of a kubeconfig with all rights
    Kubeconfig,
    /// Print the kubelet's directory, which on other machines is /var/lib/kubelet
    KubeletDir,
    /// Run kubectl against the cluster
    #[command(disable_help_flag = true)]
    Kubectl {
        /// Arguments of kubectl
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

pub(crate) fn run(args: Args) -> Result<()> {
    let name = args.name;
    match args.action {
        Action::Up { control_plane_only, version } => {
            let options = Options::default().version(version);
            up(&name, if control_plane_only { options.control_plane_only() } else { options })
        }
        Action::Build { version } => {
            kubernetes::program(version)?;
            helm::program()?;
            sidecars::build()?;
            sanity::program()?;
            foreign::hostpath()?;
            foreign::local_path()?;
            foreign::provisioner()?;
            Ok(())
        }
        Action::Status => {
            let status = cluster::status(&name)?.with_context(|| format!("there is no cluster {name}"))?;
            say::line(show(&name, &status).trim_end());
            if !status.healthy() {
                bail!(
                    "the cluster {name} is unhealthy; `cargo xtask cluster up` replaces it once a part has ended"
                );
            }
            Ok(())
        }
        Action::Down => {
            let gone = cluster::down(&name)?;
            say::line(format_args!(
                "{}",
                if gone { "The cluster is gone." } else { "There was no cluster." }
            ));
            Ok(())
        }
        Action::Logs { part, lines } => {
            say::line(cluster::log(&name, part, lines)?);
            Ok(())
        }
        Action::Load { archive } => {
            cluster::load(&name, &archive)?;
            say::line(format_args!("The node of the cluster {name} has {}.", archive.display()));
            Ok(())
        }
        Action::Kubeconfig => {
            say::line(cluster::kubeconfig(&name)?.display());
            Ok(())
        }
        Action::KubeletDir => {
            say::line(cluster::kubelet_folder(&name)?.display());
            Ok(())
        }
        Action::Kubectl { arguments } => {
            // Takes this program's place, so that its exit code and the terminal are kubectl's own.
            let error = cluster::kubectl(&name)?.args(arguments).exec();
            Err(error).context("kubectl did not start")
        }
    }
}

fn up(name: &Name, options: Options) -> Result<()> {
    let start = Instant::now();
    let has_node = options.has_node();
    let up = cluster::up(name, options)?;
    let how = if up.already {
        "runs already".to_owned()
    } else {
        format!("is up after {} s", start.elapsed().as_secs())
    };
    let named = if name.to_string() == "default" { String::new() } else { format!(" --name {name}") };
    let task = format!("cargo xtask cluster{named}");
    let config = up.kubeconfig.display();
    say::line(format_args!(
        "The cluster {name} {how}.\n\n  \
         use it      export KUBECONFIG={config}\n              {task} kubectl get pods -A\n  \
         check it    {task} status\n  stop it     {task} down"
    ));
    if has_node {
        let version = env!("CARGO_PKG_VERSION");
        say::line(format_args!(
            "\n  Volmedic    cargo xtask dist\n              \
             {task} load target/volmedic-dist/volmedic-image-{version}.tar\n              \
             kubectl apply -f deploy/namespace.yaml\n              \
             helm install volmedic target/volmedic-dist/volmedic-{version}.tgz --namespace volmedic --wait \\\n                \
             --set agent.kubeletDir=\"$({task} kubelet-dir)\""
        ));
    }
    Ok(())
}

fn show(name: &Name, status: &Status) -> String {
    let mut text =
        format!("{name}: Kubernetes {}, kubeconfig {}\n", status.version, status.kubeconfig.display());
    for (part, pid) in &status.parts {
        let state = pid.map_or_else(|| "not running".to_owned(), |pid| format!("process {pid}"));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {part:<24} {state}");
    }
    let mut judge = |what: &str, judgement: &Result<(), String>| {
        let state =
            judgement.as_ref().map_or_else(|why| format!("not ready: {why}"), |()| "ready".to_owned());
        let _ = writeln!(text, "  {what:<24} {state}");
    };
    judge("API", &status.api);
    if let Some(node) = &status.node {
        judge("node", node);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn bad_arguments_are_refused_with_a_sentence_and_two() {
        for (arguments, sentence) in [
            (&["up", "--version", "1.37"][..], "`1.37` is not a Kubernetes release; write it as v1.37.1"),
            (&["up", "--name", "../x"], "`../x` is no name for a cluster"),
            (&["logs", "apiserver"], "there is no part `apiserver`; the parts are etcd, kube-apiserver,"),
            (&["logs"], "required arguments were not provided"),
            (&["load"], "required arguments were not provided"),
            (&["start"], "unrecognized subcommand"),
        ] {
            let error = Cli::try_parse_from([&["cluster"], arguments].concat()).err().unwrap();
            assert_eq!(error.exit_code(), 2, "{arguments:?}");
            assert!(error.to_string().contains(sentence), "{error}");
        }
    }

    #[test]
    fn kubectl_gets_its_arguments_untouched() {
        let cli =
            Cli::parse_from(["cluster", "--name", "x", "kubectl", "get", "-A", "--help", "--name", "pods"]);
        let Action::Kubectl { arguments } = cli.args.action else { panic!("not kubectl") };
        assert_eq!(arguments, ["get", "-A", "--help", "--name", "pods"]);
    }

    #[test]
    fn the_status_says_what_runs_and_what_is_wrong() {
        let status = Status {
            version: "v1.37.1".into(),
            kubeconfig: "/x/kubeconfig".into(),
            parts: vec![(Part::Etcd, Some(7)), (Part::ApiServer, None)],
            api: Err("connection refused".into()),
            node: None,
        };
        assert!(!status.healthy());
        assert_eq!(
            show(&"a".parse().unwrap(), &status),
            "a: Kubernetes v1.37.1, kubeconfig /x/kubeconfig\n  etcd                     process 7\n  \
             kube-apiserver           not running\n  API                      not ready: connection refused\n",
        );
    }
}
