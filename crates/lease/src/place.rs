//! Which Lease, where, and under which name we stand for it. All as the CSI sidecars written in Go do it.

use std::path::Path;
use std::{fs, io};

const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
const HOSTNAME_FILE: &str = "/proc/sys/kernel/hostname";

/// The Lease that external-health-monitor uses for this driver, so that the two never lead at the same time.
pub fn lock_name(driver: &str) -> String {
    sanitize(&format!("external-health-monitor-leader-{driver}"))
}

/// What is neither a letter, a digit nor `-` becomes `-`; a name that would end in `-` gets an `X`.
pub fn sanitize(name: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    let mut clean: String = name.chars().map(keep).collect();
    if clean.ends_with('-') {
        clean.push('X');
    }
    clean
}

/// The namespace of the Lease: the flag, else `POD_NAMESPACE`, else the pod's service account's, else `default`.
pub fn namespace(flag: &str) -> String {
    let env = std::env::var("POD_NAMESPACE").unwrap_or_default();
    choose_namespace(flag, &env, Path::new(NAMESPACE_FILE))
}

fn choose_namespace(flag: &str, env: &str, file: &Path) -> String {
    let given = [flag, env].into_iter().find(|text| !text.is_empty()).map(str::to_owned);
    let mounted = || fs::read_to_string(file).ok().map(|text| text.trim().to_owned());
    given.or_else(mounted).filter(|name| !name.is_empty()).unwrap_or_else(|| "default".to_owned())
}

/// The name of this machine, which is the pod's name in a pod: the identity under which a sidecar stands.
pub fn hostname() -> io::Result<String> {
    Ok(fs::read_to_string(HOSTNAME_FILE)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_the_go_sidecars_make_them() {
        assert_eq!(lock_name("disk.csi.example.net"), "external-health-monitor-leader-disk-csi-example-net");
        assert_eq!(sanitize("a/b_c."), "a-b-c-X");
        assert_eq!(sanitize("größe"), "gr--e");
        assert_eq!(sanitize("UpperCase-9"), "UpperCase-9");
    }

    #[test]
    fn the_first_that_names_a_namespace_wins() {
        let mine = format!("volmedic-lease-namespace-{}", std::process::id());
        let file = std::env::temp_dir().join(mine);
        fs::write(&file, "mounted\n").unwrap();
        let check =
            |flag, env, file: &Path, expected| assert_eq!(choose_namespace(flag, env, file), expected);
        check("flag", "env", &file, "flag");
        check("", "env", &file, "env");
        check("", "", &file, "mounted");
        fs::write(&file, "\n").unwrap();
        check("", "", &file, "default");
        fs::remove_file(&file).unwrap();
        check("", "", &file, "default");
    }

    #[test]
    fn this_machine_has_a_name() {
        assert!(!hostname().unwrap().is_empty());
    }
}
