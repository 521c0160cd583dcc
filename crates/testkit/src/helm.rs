//! Helm itself, built from its Go module, so that a chart is judged by the program that installs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::go_module::{GoModule, Source};
use crate::process;

mod readme;

const MODULE: GoModule = GoModule {
    folder: "helm",
    what: "helm",
    source: Source::Carried(&[
        ("go.mod", include_str!("../go-helm/go.mod")),
        ("go.sum", include_str!("../go-helm/go.sum")),
    ]),
    packages: &["helm.sh/helm/v4/cmd/helm"],
    programs: &["helm"],
};
const LIMIT: Duration = Duration::from_mins(1);
const TEST_LIMIT: Duration = Duration::from_mins(6);
/// The namespace that the plain manifests are for.
const NAMESPACE: &str = "volmedic";
const HEADER: &str = "# Made by `cargo xtask chart` from deploy/chart. Edits here are overwritten.\n";

/// The path of `helm`. Built first if need be, which takes minutes.
pub fn program() -> Result<PathBuf> {
    Ok(MODULE.build()?.join("helm"))
}

/// The chart of a checkout.
#[derive(Debug)]
pub struct Chart {
    helm: PathBuf,
    folder: PathBuf,
}

impl Chart {
    /// The one below the checkout's root.
    pub fn of(root: &Path) -> Result<Self> {
        let folder = root.join("deploy/chart");
        if !folder.join("Chart.yaml").is_file() {
            bail!("there is no chart in {}; is this the checkout's root?", folder.display());
        }
        Ok(Self { helm: program()?, folder })
    }

    /// `helm lint --strict`; the error is what it said. A notice, such as one about a symbolic link, is an error too.
    pub fn lint(&self) -> Result<()> {
        let mut command = self.command("lint");
        command.arg("--strict").arg(&self.folder);
        let said = process::run(command, LIMIT)?;
        let notices = said.stderr.trim().to_owned();
        said.or_fail("`helm lint`")?;
        if !notices.is_empty() {
            bail!("`helm lint` has a notice: {notices}");
        }
        Ok(())
    }

    /// What `helm template` makes with these values on top of the chart's own, as YAML documents.
    pub fn render(&self, namespace: &str, values: &Value) -> Result<String> {
        self.template(namespace, values, &[])
    }

    fn template(&self, namespace: &str, values: &Value, arguments: &[&str]) -> Result<String> {
        let mut command = self.command("template");
        command.arg("volmedic").arg(&self.folder).args(["--namespace", namespace]).args(arguments);
        command.arg("--set-json").arg(values.to_string());
        process::run(command, LIMIT)?.or_fail("`helm template`")
    }

    /// Runs the tests of the release, and gives what they printed.
    pub fn test(&self, kubeconfig: &Path, namespace: &str) -> Result<String> {
        let mut command = self.command("test");
        command.args(["volmedic", "--logs", "--namespace", namespace, "--kubeconfig"]).arg(kubeconfig);
        command.args(["--timeout", "5m"]);
        process::run(command, TEST_LIMIT)?.or_fail("`helm test`")
    }

    /// Installs the release `volmedic`, or upgrades it, and gives the notes. Waits for no pod.
    pub fn install(&self, kubeconfig: &Path, namespace: &str, values: &Value) -> Result<String> {
        let mut command = self.command("upgrade");
        command.args(["--install", "--create-namespace", "volmedic"]).arg(&self.folder);
        command.args(["--namespace", namespace, "--set-json"]).arg(values.to_string());
        command.arg("--kubeconfig").arg(kubeconfig);
        process::run(command, LIMIT)?.or_fail("`helm upgrade --install`")
    }

    /// Takes that release away.
    pub fn uninstall(&self, kubeconfig: &Path, namespace: &str) -> Result<()> {
        let mut command = self.command("uninstall");
        command.args(["volmedic", "--namespace", namespace, "--kubeconfig"]).arg(kubeconfig);
        process::run(command, LIMIT)?.or_fail("`helm uninstall`").map(drop)
    }

    /// Every file that is made from the chart: its path from the checkout's root, and what it holds.
    pub fn manifests(&self) -> Result<Vec<(String, String)>> {
        // Tests are Helm's.
        let all = plain(&self.template(NAMESPACE, &json!({}), &["--skip-tests"])?);
        let namespace = self.folder.with_file_name("namespace.yaml");
        let namespace =
            fs::read_to_string(&namespace).with_context(|| format!("cannot read {}", namespace.display()))?;
        let all = format!("{HEADER}---\n{namespace}{all}");
        let (values, about) = (self.file("values.yaml")?, self.file("Chart.yaml")?);
        let version = about.lines().find_map(|line| line.strip_prefix("version: ")).unwrap_or_default();
        let mut made = vec![
            ("deploy/manifests/volmedic.yaml".to_owned(), all),
            ("deploy/chart/README.md".to_owned(), readme::make(&values, version)),
        ];
        for driver in self.drivers()? {
            let whole = self.render(NAMESPACE, &json!({"controllers": [{"driver": driver}]}))?;
            let of_driver = plain(&whole)
                .split_inclusive("---\n")
                .filter(|object| object.contains("templates/controllers.yaml"))
                .collect::<String>();
            let text = format!("{HEADER}---\n{}", of_driver.trim_end_matches("---\n"));
            made.push((format!("deploy/sidecars/{driver}.yaml"), text));
        }
        Ok(made)
    }

    /// The drivers that the chart knows, by the names in its table.
    pub fn drivers(&self) -> Result<Vec<String>> {
        let text = self.file("files/drivers.yaml")?;
        let names = text.lines().filter_map(|line| line.strip_suffix(':'));
        Ok(names.filter(|name| !name.starts_with([' ', '#'])).map(str::to_owned).collect())
    }

    fn file(&self, name: &str) -> Result<String> {
        let path = self.folder.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Helm without anything of the user's own.
    fn command(&self, action: &str) -> Command {
        let mut command = Command::new(&self.helm);
        let nowhere = "/nonexistent";
        for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(name, nowhere);
        }
        command.env("KUBECONFIG", nowhere).arg(action);
        command
    }
}

/// Without what is only true of an installation by Helm.
fn plain(text: &str) -> String {
    let of_helm = ["app.kubernetes.io/managed-by: ", "app.kubernetes.io/instance: ", "helm.sh/chart: "];
    let kept = text.lines().filter(|line| !of_helm.iter().any(|start| line.trim_start().starts_with(start)));
    let mut plain = String::with_capacity(text.len());
    let mut blank = false;
    for line in kept {
        let empty = line.trim().is_empty();
        if !empty || !(blank || plain.ends_with("---\n")) {
            plain.push_str(line);
            plain.push('\n');
        }
        blank = empty;
    }
    plain.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_objects_do_not_claim_to_be_helms() {
        let text = "---\n\n\nkind: A\nmetadata:\n  labels:\n    app.kubernetes.io/managed-by: Helm\n    a: b\n\n\nx: y\n\n";
        assert_eq!(plain(text), "---\nkind: A\nmetadata:\n  labels:\n    a: b\n\nx: y\n");
    }
}
