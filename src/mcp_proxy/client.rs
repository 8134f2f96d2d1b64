//! The client that asks the servers, shared by all proxies.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{NoProxy, Proxy};

/// How long a server may take to accept a connection. There is no limit on its answers: an event stream is as long as
/// its session.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[error("tool servers cannot be asked: {0}")]
pub struct ProxyClientError(#[from] reqwest::Error);

/// The client that asks the servers. Cheap to clone; its connections are shared.
#[derive(Clone, Debug)]
pub struct ProxyClient(pub(super) reqwest::Client);

impl ProxyClient {
    /// `environment`: the variables that say by which proxies of the network goose would ask the servers itself.
    pub fn new(environment: &[(String, String)]) -> Result<Self, ProxyClientError> {
        // There is one for the whole process; whoever was first has installed the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // goose follows redirects, and is to see them.
        let mut client =
            reqwest::Client::builder().no_proxy().redirect(Policy::none()).connect_timeout(CONNECT_TIMEOUT);
        for proxy in network_proxies(environment) {
            client = client.proxy(proxy?);
        }
        Ok(Self(client.build()?))
    }
}

/// The proxies that the usual variables name, the last of a name; each name in capitals first, as in goose (measured).
fn network_proxies(environment: &[(String, String)]) -> Vec<reqwest::Result<Proxy>> {
    let variable = |name: &str| {
        let value = |name: &str| {
            let named = environment.iter().rev().find(|(other, _)| other == name);
            named.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
        };
        value(name).or_else(|| value(&name.to_ascii_lowercase()))
    };
    let no_proxy = variable("NO_PROXY").and_then(NoProxy::from_string);
    let proxies = [
        // The first that fits counts.
        variable("HTTP_PROXY").map(Proxy::http),
        variable("HTTPS_PROXY").map(Proxy::https),
        variable("ALL_PROXY").map(Proxy::all),
    ];
    let proxies = proxies.into_iter().flatten();
    proxies.map(|proxy| proxy.map(|proxy| proxy.no_proxy(no_proxy.clone()))).collect()
}
