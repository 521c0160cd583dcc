//! Which proxy leads to the API server: the kubeconfig's `proxy-url`, else the environment, as for kubectl.

use anyhow::{Context, bail};
use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::Config;
use kube::config::Kubeconfig;

const SCHEMES: [&str; 3] = ["http", "https", "socks5"];
/// Where the environment names the proxy for https, in this order.
const VARIABLES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// Sets the proxy of a configuration made from this kubeconfig. The client library compares NO_PROXY with the address of the
/// proxy, and also where the kubeconfig names the proxy; kubectl does neither.
pub fn choose(config: &mut Config, file: &Kubeconfig, context: &str) -> anyhow::Result<()> {
    let variable = |name: &&str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let set = || VARIABLES.iter().find_map(variable);
    let environment = Matcher::from_env();
    config.proxy_url = match named(file, context) {
        Some(text) => Some(parse(text).context("the cluster's proxy-url in the kubeconfig cannot be used")?),
        None if is_here(&config.cluster_url) || environment.intercept(&config.cluster_url).is_none() => None,
        None => match set() {
            Some(text) => Some(parse(&text).context("the proxy in HTTPS_PROXY cannot be used")?),
            // HTTP_PROXY is for clusters without TLS.
            None => environment.intercept(&config.cluster_url).map(|proxy| proxy.uri().clone()),
        },
    };
    Ok(())
}

/// The proxy without the name and the password that may be in its address.
pub fn shown(proxy: &Uri) -> String {
    let port = proxy.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", proxy.scheme_str().unwrap_or_default(), proxy.host().unwrap_or_default())
}

fn named<'a>(file: &'a Kubeconfig, context: &str) -> Option<&'a str> {
    let context = file.contexts.iter().find(|named| named.name == context)?.context.as_ref()?;
    let cluster = file.clusters.iter().find(|named| named.name == context.cluster)?.cluster.as_ref()?;
    cluster.proxy_url.as_deref().filter(|url| !url.is_empty())
}

/// Never repeats the address: a password may be in it.
fn parse(text: &str) -> anyhow::Result<Uri> {
    // Names are resolved by the proxy in either case.
    let text =
        text.strip_prefix("socks5h://").map_or_else(|| text.to_owned(), |rest| format!("socks5://{rest}"));
    let Ok(url) = text.parse::<Uri>() else {
        bail!("it is not a URL; write it as in http://proxy.example.net:3128")
    };
    match url.scheme_str() {
        Some(scheme) if SCHEMES.contains(&scheme) && url.host().is_some() => Ok(url),
        Some(scheme) => bail!("its scheme is {scheme:?}; it must be one of {}", SCHEMES.join(", ")),
        None => bail!("it has no scheme; it must be one of {}", SCHEMES.join(", ")),
    }
}

/// As Go has it: what is on this machine needs no proxy of the environment.
fn is_here(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_proxies_that_the_client_can_use_and_no_password_in_an_error() {
        let check = |text: &str, expected: Result<&str, &str>| match (parse(text), expected) {
            (Ok(url), Ok(expected)) => assert_eq!(shown(&url), expected),
            (Err(error), Err(expected)) => {
                let error = error.to_string();
                assert!(error.contains(expected) && !error.contains("secret"), "{error}");
            }
            (found, _) => panic!("{text}: {found:?}"),
        };
        check("http://me:secret@proxy.example.net:3128/", Ok("http://proxy.example.net:3128"));
        check("https://proxy.example.net", Ok("https://proxy.example.net"));
        check("socks5h://[::1]:1080", Ok("socks5://[::1]:1080"));
        check(
            "ftp://me:secret@proxy.example.net",
            Err("its scheme is \"ftp\"; it must be one of http, https, socks5"),
        );
        check("/secret", Err("it has no scheme"));
        check("http://me:secret@", Err("it is not a URL"));
        check("", Err("it is not a URL"));
    }

    #[test]
    fn the_environment_leads_past_what_is_on_this_machine() {
        for (url, here) in [
            ("https://127.0.0.1:6443", true),
            ("https://[::1]:6443", true),
            ("https://localhost", true),
            ("https://10.0.0.1", false),
        ] {
            assert_eq!(is_here(&url.parse().unwrap()), here, "{url}");
        }
    }
}
