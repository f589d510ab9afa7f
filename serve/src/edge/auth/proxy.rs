//! Identifies callers by the headers of a trusted proxy, such as oauth2-proxy.

use std::collections::HashMap;
use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName};
use ipnet::IpNet;

use crate::edge::auth::{NamePattern, Principal, Role, Via};
use crate::edge::problem::{Code, Problem};

/// The most bytes of a user's name.
const MAX_USER_BYTES: usize = 256;

/// A proxy whose headers name the user. The headers are ignored if they come from another address.
#[derive(Debug, Clone)]
pub struct TrustedProxy {
    networks: Vec<IpNet>,
    user_header: HeaderName,
    groups_header: Option<HeaderName>,
    group_roles: HashMap<String, Vec<Role>>,
}

impl TrustedProxy {
    /// Trusts the peers of these networks, such as `10.0.0.7/32`. `user_header` is the header with
    /// the user's name, `groups_header` that with the groups, separated by commas. `group_roles`
    /// gives the roles of each group.
    ///
    /// # Errors
    /// The text says which value cannot be read.
    pub fn new(
        networks: &[String],
        user_header: &str,
        groups_header: Option<&str>,
        group_roles: &[(String, Role)],
    ) -> Result<Self, String> {
        let network = |text: &String| {
            let network = text.parse::<IpNet>();
            network
                .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
                .map_err(|_| format!("{text:?} is no network: write 10.0.0.7/32 or 10.0.0.7"))
        };
        let header = |text: &str| {
            HeaderName::try_from(text).map_err(|_| format!("{text:?} is no name of a header"))
        };
        let mut roles: HashMap<String, Vec<Role>> = HashMap::new();
        for (group, role) in group_roles {
            roles.entry(group.clone()).or_default().push(*role);
        }
        Ok(Self {
            networks: networks.iter().map(network).collect::<Result<_, _>>()?,
            user_header: header(user_header)?,
            groups_header: groups_header.map(header).transpose()?,
            group_roles: roles,
        })
    }

    pub(crate) fn trusts(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.networks.iter().any(|network| network.contains(&peer))
    }

    /// The user that the headers of a trusted peer name; `None` if they name nobody. A header that
    /// occurs twice is refused: one of the two may be the client's, passed on by the proxy.
    pub(crate) fn principal(&self, headers: &HeaderMap) -> Result<Option<Principal>, Problem> {
        let Some(user) = single(headers, &self.user_header)? else {
            return Ok(None);
        };
        if user.is_empty() {
            return Ok(None);
        }
        if user.len() > MAX_USER_BYTES {
            return Err(wrong(&self.user_header, "the name of the user is too long"));
        }
        let groups = match &self.groups_header {
            Some(header) => single(headers, header)?.unwrap_or_default(),
            None => "",
        };
        let mut roles: Vec<Role> = Vec::new();
        for group in groups.split(',').map(str::trim) {
            for role in self.group_roles.get(group).into_iter().flatten() {
                if !roles.contains(role) {
                    roles.push(*role);
                }
            }
        }
        // A user without a known group has no role, and so no rights.
        let queues = vec![NamePattern::all()];
        Ok(Some(Principal::new(user, Via::Proxy, roles, queues)))
    }
}

/// The value of a header that must not occur twice.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(wrong(name, "it is there twice"));
    }
    let text = std::str::from_utf8(value.as_bytes());
    text.map(Some).map_err(|_| wrong(name, "it is not UTF-8"))
}

fn wrong(name: &HeaderName, reason: &str) -> Problem {
    Problem::new(Code::BadRequest, format!("header {name}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::auth::Right;

    #[test]
    fn known_groups_give_roles_and_unknown_ones_none() {
        let roles = [
            ("sre".to_owned(), Role::Operator),
            ("dev".to_owned(), Role::Viewer),
        ];
        let networks = ["10.0.0.0/8".to_owned(), "::1".to_owned()];
        let proxy = TrustedProxy::new(&networks, "x-user", Some("x-groups"), &roles).expect("read");
        assert!(proxy.trusts("10.1.2.3".parse().expect("an address")));
        assert!(proxy.trusts("::ffff:10.1.2.3".parse().expect("an address")));
        assert!(!proxy.trusts("11.0.0.1".parse().expect("an address")));
        let principal = |user: &'static str, groups: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-user", user.parse().expect("a value"));
            headers.insert("x-groups", groups.parse().expect("a value"));
            proxy.principal(&headers).expect("single values")
        };
        assert!(
            principal("ann", "dev, sre")
                .expect("a user")
                .has(Right::Operate)
        );
        let dev = principal("bob", "dev").expect("a user");
        assert!(dev.has(Right::Read) && !dev.has(Right::Operate));
        assert!(
            !principal("eve", "SRE,sre2,s re")
                .expect("a user")
                .has(Right::Read)
        );
        assert!(principal("", "sre").is_none());
        let mut twice = HeaderMap::new();
        twice.append("x-user", "ann".parse().expect("a value"));
        twice.append("x-user", "root".parse().expect("a value"));
        assert!(proxy.principal(&twice).is_err());
    }
}
