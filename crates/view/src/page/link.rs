//! Links within the page. They are relative, so that it also works below a prefix, such as behind a proxy.

use std::fmt::Write as _;

use crate::Query;

/// The list of volumes with this query.
pub(super) fn volumes(query: &Query) -> String {
    let pairs = query.pairs();
    if pairs.is_empty() {
        return "./".to_owned();
    }
    format!("./{}", with_pairs(pairs.iter().map(|(key, value)| (*key, value.as_str()))))
}

/// The page of one volume.
pub(super) fn volume(driver: &str, volume: &str) -> String {
    format!("volume{}", with_pairs([("driver", driver), ("volume", volume)]))
}

pub(super) fn window(driver: &str, volume: &str, window: &str) -> String {
    format!("volume{}", with_pairs([("driver", driver), ("volume", volume), ("window", window)]))
}

pub(super) fn nodes(page: usize) -> String {
    if page <= 1 { "nodes".to_owned() } else { format!("nodes?page={page}") }
}

fn with_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = String::new();
    for (key, value) in pairs {
        text.push(if text.is_empty() { '?' } else { '&' });
        text.push_str(key);
        text.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                text.push(char::from(byte));
            } else {
                // Writing to a string cannot fail.
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_fits_into_a_link() {
        assert_eq!(
            volume("d.example", "a/b&c=\"<ü>"),
            "volume?driver=d.example&volume=a%2Fb%26c%3D%22%3C%C3%BC%3E"
        );
        assert_eq!(volumes(&Query::default()), "./");
        assert_eq!(
            volumes(&Query { search: "a b+c".into(), page: 2, ..Query::default() }),
            "./?q=a%20b%2Bc&page=2"
        );
    }
}
