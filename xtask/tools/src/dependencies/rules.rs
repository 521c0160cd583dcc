//! The lists of `deny.toml` that this program uses.

use anyhow::{Result, bail};

#[derive(Debug)]
pub(super) struct Rules {
    pub(super) licences: Vec<String>,
    /// Addresses of registries.
    pub(super) registries: Vec<String>,
    /// Crates that may not be there at all.
    pub(super) banned: Vec<String>,
    /// Crates that may be there in one version only.
    pub(super) single: Vec<String>,
}

impl Rules {
    pub(super) fn read(text: &str) -> Result<Self> {
        let entries = |section: &str, key: &str| -> Result<Vec<&str>> {
            let found = list(text, section, key);
            if found.is_empty() {
                bail!("deny.toml has no entries of `{key}` in [{section}], one on each line");
            }
            Ok(found)
        };
        let quoted = |entry: &str| entry.split('"').nth(1).map(str::to_owned);
        let words = |entries: Vec<&str>| entries.into_iter().filter_map(quoted).collect();
        let (single, banned): (Vec<&str>, Vec<&str>) = entries("bans", "deny")?
            .into_iter()
            .partition(|entry| entry.contains("deny-multiple-versions = true"));
        Ok(Self {
            licences: words(entries("licenses", "allow")?),
            registries: words(entries("sources", "allow-registry")?),
            banned: words(banned),
            single: words(single),
        })
    }
}

/// The lines between `key = [` and `]` in a section, without comments.
fn list<'a>(text: &'a str, section: &str, key: &str) -> Vec<&'a str> {
    let lines = text.lines().map(str::trim).skip_while(|line| *line != format!("[{section}]")).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    let lines =
        lines.skip_while(|line| *line != format!("{key} = [")).skip(1).take_while(|line| *line != "]");
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_of_a_file_are_read_and_an_empty_one_is_an_error() {
        let text = "[licenses]\nversion = 2\nallow = [\n    \"MIT\",\n    # why\n    \"ISC\",\n]\n[bans]\ndeny = [\n    \
                    { crate = \"openssl\" },\n    { crate = \"tokio\", deny-multiple-versions = true },\n]\n\
                    [sources]\nallow-registry = [\n    \"https://a\",\n]\n";
        let rules = Rules::read(text).unwrap();
        assert_eq!(rules.licences, ["MIT", "ISC"]);
        assert_eq!(rules.registries, ["https://a"]);
        assert_eq!((rules.banned, rules.single), (vec!["openssl".to_owned()], vec!["tokio".to_owned()]));
        let error = Rules::read(&text.replace("allow = [", "allow = [] #")).unwrap_err().to_string();
        assert_eq!(error, "deny.toml has no entries of `allow` in [licenses], one on each line");
    }
}
