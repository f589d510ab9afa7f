//! Checks the address of a webhook: only public addresses are allowed, unless the operator allows
//! private ones.
//!
//! Otherwise the person who sets the URL of a receiver could reach services that only this machine
//! can reach.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::bail;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::output::Usage;

/// Whether an address is public: not one of this machine, of a private network or of a special
/// range, in any notation.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Follows the IANA registry of special-purpose addresses; entries marked globally reachable count
/// as public.
fn is_public_v4(address: Ipv4Addr) -> bool {
    !matches!(
        address.octets(),
        [0 | 10 | 127 | 224..=255, ..]         // this network, private, loopback, multicast, reserved, broadcast
            | [100, 64..=127, ..]              // shared by carriers
            | [169, 254, ..]                   // link-local; the clouds' metadata
            | [172, 16..=31, ..]               // private
            | [192, 0, 0 | 2, _]               // protocol assignments, documentation
            | [192, 88, 99, _]                 // 6to4 relays
            | [192, 168, ..]                   // private
            | [198, 18 | 19, ..]               // benchmarks
            | [198, 51, 100, _]                // documentation
            | [203, 0, 113, _] // documentation
    )
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] => embedded(high, low), // IPv4-mapped
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low), // NAT64
        [0x2002, high, low, ..] => embedded(high, low),            // 6to4
        [0x2000..=0x3fff, _, _, _, 0 | 0x200, 0x5efe, high, low] if !embedded(high, low) => false, // ISATAP
        [0x2001, 0..=0x1ff, ..] => false, // protocol assignments, Teredo among them
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false, // documentation
        // IANA allocates public addresses from 2000::/3 only.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

/// Refuses a URL whose host is a private address, or a name that now has only private addresses.
pub(super) async fn check_host(url: &Url) -> anyhow::Result<()> {
    let Some(host) = url.host_str() else {
        bail!(Usage("--http: the URL has no host".to_owned()))
    };
    let literal = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>();
    let addresses: Vec<IpAddr> = match literal {
        Ok(address) => vec![address],
        Err(_) => match tokio::net::lookup_host((host, 0)).await {
            Ok(found) => found.map(|found| found.ip()).collect(),
            // The name may become resolvable later; each request resolves it again.
            Err(error) => {
                tracing::warn!(host, %error, "the name of the receiver does not resolve now; each request tries again");
                return Ok(());
            }
        },
    };
    if addresses.iter().any(|address| is_public(*address)) {
        return Ok(());
    }
    bail!(Usage(format!(
        "--http: {host} has no public address; --allow-private allows private, loopback and link-local ones"
    )))
}

/// A resolver that returns only the public addresses of a name. The connection uses the checked
/// address; the name is not resolved a second time.
pub(super) struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|found| is_public(found.ip())).collect();
            if public.is_empty() {
                let refused = format!(
                    "{} has no public address, and --allow-private is not set",
                    name.as_str()
                );
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, refused).into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_are_allowed() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "2001:4860::8888",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
        ] {
            assert!(is_public(text.parse().expect(text)), "{text}");
        }
    }

    #[test]
    fn private_addresses_are_refused_in_all_forms() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
        ] {
            let address: Ipv4Addr = text.parse().expect(text);
            assert!(!is_public(address.into()), "{text}");
            let [a, b, c, d] = address.octets();
            let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            for form in [
                Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
                Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
                Ipv6Addr::new(0x2a00, 1, 2, 3, 0x200, 0x5efe, high, low),
            ] {
                assert!(!is_public(form.into()), "{form} of {text}");
            }
        }
        for text in [
            "::",
            "::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "2001:db8::1",
            "3fff::1",
            "2001::1",
            "64:ff9b:1::1",
            "5f00::1",
            "4000::1",
        ] {
            assert!(!is_public(text.parse().expect(text)), "{text}");
        }
    }

    #[tokio::test]
    async fn private_hosts_are_refused_in_every_notation() {
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://0x7f000001/",
            "http://2130706433/",
            "http://017700000001/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:a00:1]/",
            "http://localhost/",
            "http://LOCALHOST/",
            "http://169.254.169.254/latest/meta-data",
            // Zero, octal, hexadecimal, a trailing full stop, and other Unicode digits and full
            // stops.
            "http://0/",
            "http://0.0.0.0/",
            "http://[::]/",
            "http://0177.0.0.1/",
            "http://0x7f.1/",
            "http://127.0.0.1./",
            "http://127.0.0.1.:80/",
            "http://\u{2460}\u{2461}\u{2466}.0.0.1/",
            "http://\u{ff11}\u{ff12}\u{ff17}\u{3002}0\u{3002}0\u{ff0e}1/",
            // IPv4 within IPv6: compatible, mapped, translated, NAT64 and its local form, 6to4,
            // Teredo.
            "http://[::127.0.0.1]/",
            "http://[0:0:0:0:0:ffff:7f00:1]/",
            "http://[::ffff:0:127.0.0.1]/",
            "http://[64:ff9b::127.0.0.1]/",
            "http://[64:ff9b::a9fe:a9fe]/",
            "http://[64:ff9b:1::10.0.0.1]/",
            "http://[2002:7f00:1::1]/",
            "http://[2002:a00:1::]/",
            "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
            "http://[fd00::1]/",
            "http://[fe80::1]/",
            "http://[fec0::1]/",
            "http://[ff02::1]/",
            // User names before the host, which look like a host.
            "http://1.1.1.1@127.0.0.1/",
            "http://user:1.1.1.1@127.0.0.1:80/",
            "http://1.1.1.1%2f@127.0.0.1/",
            "http://127.0.0.1\\@1.1.1.1/",
            "http://127.0.0.1#@1.1.1.1/",
            "http://127.0.0.1?@1.1.1.1/",
            "http:127.0.0.1/",
            "http:\\\\127.0.0.1\\",
            "http://127.0.\t0.1/",
        ] {
            let refused = check_host(&url.parse().expect(url)).await;
            assert!(
                refused.is_err_and(|error| error.to_string().contains("--allow-private")),
                "{url}"
            );
        }
        assert!(
            check_host(&"https://1.1.1.1/".parse().expect("a URL"))
                .await
                .is_ok()
        );
    }

    #[tokio::test]
    async fn names_resolve_to_public_addresses_only() {
        let resolved = PublicOnly
            .resolve("localhost".parse().expect("a name"))
            .await;
        assert!(resolved.is_err_and(|error| error.to_string().contains("no public address")));
    }

    #[tokio::test]
    async fn client_does_not_connect_to_a_names_private_address() -> anyhow::Result<()> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        // The library then chooses a TLS provider, which the client needs.
        let _ = dueq::Client::connect("redis://127.0.0.1:1/").await;
        let client = crate::http_client::builder(false)
            .no_proxy()
            .dns_resolver(PublicOnly)
            .build()?;
        let url = format!("http://localhost:{}/", listener.local_addr()?.port());
        let refused = tokio::select! {
            answer = client.post(url).send() => answer.err().map(anyhow::Error::from),
            _ = listener.accept() => None,
        };
        assert!(refused.is_some_and(|error| format!("{error:#}").contains("no public address")));
        Ok(())
    }
}
