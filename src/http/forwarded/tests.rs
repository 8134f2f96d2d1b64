use axum::http::HeaderName;
use proptest::prelude::*;

use super::*;

fn trusting(ranges: &[&str], headers: ProxyHeaders) -> TrustedProxies {
    TrustedProxies { ranges: ranges.iter().map(|range| range.parse().unwrap()).collect(), headers }
}

fn told(
    proxies: &TrustedProxies,
    peer: &str,
    headers: &[(&str, impl AsRef<[u8]>)],
) -> (String, String, String) {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(value.as_ref()).unwrap());
    }
    let client = proxies.client(Some(Peer(SocketAddr::new(peer.parse().unwrap(), 4000))), &map);
    let text = |text: Option<Arc<str>>| text.as_deref().unwrap_or("-").to_owned();
    (client.address.unwrap().to_string(), text(client.scheme), text(client.host))
}

#[test]
fn x_forwarded_headers_are_read_from_the_right_as_far_as_their_writers_are_trusted() {
    let trusted = trusting(&["10.0.0.0/8", "127.0.0.1", "::1"], ProxyHeaders::XForwarded);
    let (for_, proto, host) = ("x-forwarded-for", "x-forwarded-proto", "x-forwarded-host");
    for (peer, headers, expected) in [
        (
            "203.0.113.7",
            &[(for_, "6.6.6.6"), (proto, "https"), (host, "evil")][..],
            ("203.0.113.7", "-", "-"),
        ),
        ("127.0.0.1", &[], ("127.0.0.1", "-", "-")),
        ("127.0.0.1", &[(proto, "https"), (host, "a.example")], ("127.0.0.1", "https", "a.example")),
        ("127.0.0.1", &[(for_, "203.0.113.7")], ("203.0.113.7", "-", "-")),
        ("::ffff:127.0.0.1", &[(for_, "203.0.113.7")], ("203.0.113.7", "-", "-")),
        // What the caller has written itself stands to the left.
        ("127.0.0.1", &[(for_, "6.6.6.6, 203.0.113.7")], ("203.0.113.7", "-", "-")),
        ("127.0.0.1", &[(for_, "6.6.6.6"), (for_, "203.0.113.7")], ("203.0.113.7", "-", "-")),
        ("127.0.0.1", &[(host, "evil, a.example"), (for_, "203.0.113.7")], ("203.0.113.7", "-", "a.example")),
        // Two proxies; the outer one's words count, whether or not the inner one has added to them.
        (
            "127.0.0.1",
            &[
                (for_, "6.6.6.6, 203.0.113.7, 10.1.1.1"),
                (proto, "http, https, http"),
                (host, "evil, a.example, inner"),
            ],
            ("203.0.113.7", "https", "a.example"),
        ),
        (
            "127.0.0.1",
            &[(for_, "203.0.113.7, 10.1.1.1"), (proto, "https"), (host, "a.example")],
            ("203.0.113.7", "https", "a.example"),
        ),
        // Callers of its own network.
        ("127.0.0.1", &[(for_, "10.1.1.2, 10.1.1.1")], ("10.1.1.2", "-", "-")),
        ("127.0.0.1", &[(for_, "203.0.113.7, unknown")], ("127.0.0.1", "-", "-")),
        ("127.0.0.1", &[(for_, "203.0.113.7:61000")], ("203.0.113.7", "-", "-")),
        ("::1", &[(for_, "[2001:db8::7]:61000")], ("2001:db8::7", "-", "-")),
        ("::1", &[(for_, "2001:db8::7")], ("2001:db8::7", "-", "-")),
        ("127.0.0.1", &[(proto, "gopher"), (for_, "203.0.113.7")], ("203.0.113.7", "-", "-")),
        // The other kind is the caller's.
        ("127.0.0.1", &[("forwarded", "for=6.6.6.6;host=evil")], ("127.0.0.1", "-", "-")),
        // What is no text is one entry of the list.
        ("127.0.0.1", &[(for_, "\u{e9}, 203.0.113.7")], ("203.0.113.7", "-", "-")),
        ("127.0.0.1", &[(for_, "203.0.113.7, \u{e9}")], ("127.0.0.1", "-", "-")),
    ] {
        let (address, scheme, host) = told(&trusted, peer, headers);
        assert_eq!((address.as_str(), scheme.as_str(), host.as_str()), expected, "{peer} {headers:?}");
    }
}

#[test]
fn forwarded_is_read_as_rfc_7239_writes_it() {
    let trusted = trusting(&["10.0.0.0/8", "127.0.0.1"], ProxyHeaders::Forwarded);
    for (header, expected) in [
        ("for=203.0.113.7;proto=https;host=a.example", ("203.0.113.7", "https", "a.example")),
        ("For=\"[2001:db8::7]:61000\" ; Proto=HTTPS", ("2001:db8::7", "https", "-")),
        (
            "for=6.6.6.6;host=evil, for=203.0.113.7;host=\"a.example:8443\"",
            ("203.0.113.7", "-", "a.example:8443"),
        ),
        (
            "for=203.0.113.7;host=\"a;b,c\";proto=https, for=10.1.1.1;host=inner",
            ("203.0.113.7", "https", "a;b,c"),
        ),
        ("for=203.0.113.7;host=a.example, for=_hidden;host=b.example", ("127.0.0.1", "-", "b.example")),
        ("proto=https", ("127.0.0.1", "https", "-")),
        ("", ("127.0.0.1", "-", "-")),
        // Read from the right as far as the quotes are closed.
        ("for=\"6.6.6.6, for=203.0.113.7;host=\"a;b,\\\"c\\\\\"", ("203.0.113.7", "-", "a;b,\"c")),
        ("host=evil;by=\", for=10.1.1.1;host=a.example", ("10.1.1.1", "-", "a.example")),
        ("for=203.0.113.7, for=\"10.1.1.1", ("127.0.0.1", "-", "-")),
    ] {
        let (address, scheme, host) = told(&trusted, "127.0.0.1", &[("forwarded", header)]);
        assert_eq!((address.as_str(), scheme.as_str(), host.as_str()), expected, "{header}");
    }
    let others = [("x-forwarded-for", "6.6.6.6"), ("x-forwarded-host", "evil")];
    assert_eq!(told(&trusted, "127.0.0.1", &others), ("127.0.0.1".into(), "-".into(), "-".into()));
}

#[test]
fn host_and_scheme_are_believed_only_where_the_proxies_are_said_to_write_them() {
    let headers = [
        ("x-forwarded-for", "203.0.113.7"),
        ("x-forwarded-host", "a.example"),
        ("x-forwarded-proto", "https"),
        ("forwarded", "host=a.example;proto=https"),
    ];
    for (kind, scheme, host) in [
        (ProxyHeaders::default(), "-", "-"),
        (ProxyHeaders::XForwardedFor, "-", "-"),
        (ProxyHeaders::XForwarded, "https", "a.example"),
    ] {
        let told = told(&trusting(&["127.0.0.1"], kind), "127.0.0.1", &headers);
        assert_eq!(told, ("203.0.113.7".into(), scheme.into(), host.into()), "{kind:?}");
    }
}

#[test]
fn nobody_is_trusted_by_default() {
    let headers = [("x-forwarded-for", "6.6.6.6"), ("x-forwarded-host", "evil")];
    let told = told(&TrustedProxies::default(), "127.0.0.1", &headers);
    assert_eq!(told, ("127.0.0.1".into(), "-".into(), "-".into()));
}

proptest! {
    /// Whatever a caller writes, the proxy in front adds the truth, in a header of its own or behind a comma.
    #[test]
    fn a_caller_can_neither_forge_nor_hide_its_address_or_host(
        forged in r#"(for=|host=evil|192\.0\.2\.66|[;,="\\ a\u{ff}]){0,8}"#,
        kind in any::<bool>(),
        own_header in any::<bool>(),
    ) {
        // No text: the last of these characters is one byte here.
        let forged: Vec<u8> = forged.chars().map(|letter| u8::try_from(letter).unwrap()).collect();
        let (headers, name, truth, expected_host) = if kind {
            (ProxyHeaders::XForwarded, "x-forwarded-for", "203.0.113.7", "-")
        } else {
            (ProxyHeaders::Forwarded, "forwarded", "for=203.0.113.7;host=\"a.example\"", "a.example")
        };
        let trusted = trusting(&["127.0.0.1"], headers);
        let sent = if own_header {
            vec![(name, forged), (name, truth.into())]
        } else {
            vec![(name, [forged.as_slice(), b", ", truth.as_bytes()].concat())]
        };
        let (address, _, host) = told(&trusted, "127.0.0.1", &sent);
        prop_assert_eq!((address.as_str(), host.as_str()), ("203.0.113.7", expected_host));
    }
}
