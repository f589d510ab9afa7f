//! Checks for any bytes that are read as a URL, a name or a handle, or as a reply of a server or a
//! Sentinel.

use redis::{ConnectionAddr, Value};

use crate::delivery::DeliveryHandle;
use crate::error::{Applied, ErrorKind};
use crate::protocol::keys::SLOTS;
use crate::protocol::keys::{Keys, partition_of_key};
use crate::protocol::limits;
use crate::protocol::partition_map::Tag;
use crate::server::cluster::slots::Address;
use crate::server::cluster::view::View;
use crate::server::connect::connector::Connector;
use crate::server::connect::options::ClientOptions;
use crate::server::info::Info;
use crate::server::sentinel::Answer;
use crate::server::sentinel::url::Parts;
use crate::server::{failure, subscription};

/// The password that the URLs of the corpus contain.
const SECRET: &str = "hunter2";

/// A reply as the server sent it, to compare with what was decoded from it.
#[derive(Clone)]
pub(crate) struct Sent(Value);

impl Sent {
    /// Reads these bytes as a reply in Redis's protocol, if they are one.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        redis::parse_redis_value(bytes).ok().map(Self)
    }

    pub(crate) fn value(&self) -> Value {
        self.0.clone()
    }

    /// The part of the reply at this path through nested arrays.
    fn find(&self, path: &[usize]) -> Option<&Value> {
        path.iter().try_fold(&self.0, |value, place| match value {
            Value::Array(parts) => parts.get(*place),
            _ => None,
        })
    }

    fn at(&self, path: &[usize]) -> &Value {
        self.find(path)
            .unwrap_or_else(|| panic!("{path:?} was never sent"))
    }

    pub(crate) fn integer(&self, path: &[usize]) -> i64 {
        match self.at(path) {
            Value::Int(number) => *number,
            other => panic!("{path:?} is {other:?}, and was read as an integer"),
        }
    }

    pub(crate) fn bytes(&self, path: &[usize]) -> &[u8] {
        match self.at(path) {
            Value::BulkString(bytes) => bytes,
            other => panic!("{path:?} is {other:?}, and was read as bytes"),
        }
    }

    pub(crate) fn text(&self, path: &[usize]) -> String {
        String::from_utf8_lossy(self.bytes(path)).into_owned()
    }

    /// How many parts the array at this path has.
    pub(crate) fn len(&self, path: &[usize]) -> usize {
        match self.at(path) {
            Value::Array(parts) => parts.len(),
            other => panic!("{path:?} is {other:?}, and was read as an array"),
        }
    }
}

/// Checks that an error's text fits a log: of limited length, on one line, without control
/// characters.
pub(crate) fn check_text(text: &str) {
    assert!(!text.is_empty(), "an error without a reason");
    assert!(text.len() < 2_000, "{} bytes: {text}", text.len());
    assert!(!text.contains(char::is_control), "{text:?}");
}

/// Checks URLs: no error text contains a password, TLS is on or off as written, and Sentinels are
/// read as written.
pub fn url(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let rest = text
        .strip_prefix("redis+sentinel://")
        .or(text.strip_prefix("rediss+sentinel://"));
    let parts = rest.and_then(Parts::read);
    if let Some(parts) = &parts {
        let Parts {
            user,
            sentinel_user,
            places,
            service,
            database,
        } = parts;
        assert!(user.is_empty() || user.ends_with('@'), "{parts:?}");
        assert!(
            sentinel_user.is_empty() || sentinel_user.ends_with('@'),
            "{parts:?}"
        );
        assert!(!service.is_empty() && !places.is_empty(), "{parts:?}");
        for place in places {
            let (host, port) = place.rsplit_once(':').expect("a port");
            assert!(
                !host.is_empty() && !place.contains(['@', '/', ',', '?']),
                "{parts:?}"
            );
            assert!(
                !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()),
                "{parts:?}"
            );
        }
        // The Sentinels' password is in the query, and the servers' is before the hosts. They must
        // not be mixed up.
        let (name, password) = sentinel_user
            .strip_suffix('@')
            .and_then(|pair| pair.split_once(':'))
            .unwrap_or_default();
        let query = match sentinel_user.is_empty() {
            true => String::new(),
            false => format!("?sentinel_user={name}&sentinel_password={password}"),
        };
        let again = format!("{user}{}/{service}/{database}{query}", places.join(","));
        assert_eq!(Parts::read(&again).as_ref(), Some(parts), "{again}");
    }
    let once = text.matches(SECRET).count() == 1;
    match Connector::new(text, &ClientOptions::new()) {
        Ok(connector) => {
            let info = connector.target().info();
            let settings = info.redis_settings();
            let of_sentinels = parts.as_ref().map(|parts| parts.sentinel_user.as_str());
            let secrets = [settings.password(), settings.username(), of_sentinels];
            // A host may have this word as its name. Then the word is no secret.
            if once && secrets.iter().flatten().any(|word| word.contains(SECRET)) {
                assert!(
                    !connector.address().contains(SECRET),
                    "{}",
                    connector.address()
                );
            }
            assert!(
                !matches!(info.addr(), ConnectionAddr::TcpTls { insecure: true, .. }),
                "TLS that trusts everybody"
            );
            // Reads the scheme as the URL standard does: it ignores case, blanks at the ends, and
            // tabs and line ends anywhere.
            let scheme = text
                .trim_matches(|c| c <= ' ')
                .replace(['\t', '\n', '\r'], "")
                .to_ascii_lowercase();
            let asked = ["rediss:", "rediss+", "valkeys:"]
                .iter()
                .any(|tls| scheme.starts_with(tls));
            assert_eq!(
                matches!(info.addr(), ConnectionAddr::TcpTls { .. }),
                asked,
                "{text}"
            );
        }
        Err(error) => {
            let told = error.to_string();
            assert_eq!(
                (error.kind(), error.was_applied()),
                (ErrorKind::InvalidInput, Applied::No)
            );
            check_text(&told);
            assert!(
                !told.contains(SECRET) && !format!("{error:?}").contains(SECRET),
                "{error:?}"
            );
        }
    }
}

/// Checks handles of deliveries: each handle has exactly one accepted text, and a refusal does not
/// repeat its text, which may contain a lease token.
pub fn handle(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match text.parse::<DeliveryHandle>() {
        Ok(handle) => {
            assert_eq!(handle.to_string(), text);
            assert!(text.len() <= DeliveryHandle::MAX_BYTES, "{text}");
            assert!(limits::check_id(handle.id_bytes()).is_ok(), "{text}");
            let token = text.split('.').nth(1).expect("a token");
            assert!(!format!("{handle:?}").contains(token), "{handle:?}");
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            check_text(&error.to_string());
            let reason = error.to_string();
            assert!(text.len() < 20 || !reason.contains(text), "{reason}");
        }
    }
}

/// Checks names and ids: they are within their ranges, and no key belongs to another queue.
pub fn name(bytes: &[u8]) {
    let is_id =
        (1..=200).contains(&bytes.len()) && !bytes.iter().any(|byte| *byte < 0x20 || *byte == 0x7f);
    match limits::check_id(bytes) {
        Ok(()) => assert!(is_id, "{bytes:?} is no id"),
        Err(error) => {
            assert!(!is_id, "{bytes:?} is an id: {error}");
            check_text(&error.to_string());
        }
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let is_name = (1..=128).contains(&bytes.len())
        && !bytes
            .iter()
            .any(|byte| *byte < 0x20 || *byte == 0x7f || b"/{}".contains(byte));
    match Keys::of_queue(text) {
        Ok(keys) => {
            assert!(is_name, "{text:?} is no name");
            for key in keys.vector.iter().chain([&keys.wake, &keys.notice]) {
                // A Redis Cluster hashes the text between the first opening brace and the next
                // closing one.
                let (_, rest) = key.split_once('{').expect("a hash tag");
                assert_eq!(rest.split_once('}').expect("its end").0, text);
            }
            assert_eq!(partition_of_key(&keys.vector[9]), Some((text, Tag::Home)));
            assert!(
                keys.vector[..9]
                    .iter()
                    .all(|key| partition_of_key(key).is_none())
            );
        }
        Err(error) => {
            assert!(!is_name, "{text:?} is a name: {error}");
            check_text(&error.to_string());
        }
    }
    if let Some((found, tag)) = partition_of_key(text) {
        let keys = Keys::of_partition(found, tag).expect("a name");
        assert_eq!(keys.vector[9], text);
    }
}

/// Checks replies about a server or from a Sentinel: they are decoded as they were sent, or not at
/// all. The first byte selects the kind of reply.
pub(crate) fn answer(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else {
        return;
    };
    match which {
        b'i' => info(rest),
        b'n' => notice(rest),
        _ => {
            let Some(sent) = Sent::read(rest) else { return };
            match which {
                b's' => sentinel(&sent),
                b'c' => slots(&sent),
                _ => refusal(&sent),
            }
        }
    }
}

fn info(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let info = Info(text.clone());
    for name in ["redis_version", "maxmemory", "role"] {
        if let Some(value) = info.field(name) {
            assert!(
                text.contains(&format!("{name}:")) && text.contains(value) && !value.contains('\n'),
                "{value:?}"
            );
            assert!(
                info.number(name)
                    .is_none_or(|number| value.parse() == Ok(number))
            );
        }
    }
}

fn notice(bytes: &[u8]) {
    match subscription::head(bytes) {
        Some(None) => assert!(bytes.is_empty()),
        Some(Some(due_ms)) => {
            let digits = bytes.strip_prefix(b"+").unwrap_or(bytes);
            let number = digits
                .iter()
                .fold(0_u128, |sum, byte| sum * 10 + u128::from(byte - b'0'));
            assert_eq!(number, u128::from(due_ms));
        }
        None => {}
    }
}

fn sentinel(sent: &Sent) {
    let Value::Array(replies) = sent.value() else {
        return;
    };
    if let Some(Answer { epoch, host, port }) = Answer::read(replies) {
        // Servers send numbers as integers, or as text with a sign.
        let said = |path: &[usize]| match sent.at(path) {
            Value::Int(number) => number.to_string(),
            Value::SimpleString(text) => text.clone(),
            Value::BulkString(_) => sent.text(path),
            other => panic!("{path:?} is {other:?}"),
        };
        assert_eq!(said(&[0, 0]), host);
        assert_eq!(said(&[0, 1]).parse(), Ok(port));
        let Value::Array(about) = sent.at(&[1]) else {
            return;
        };
        let epochs = (0..about.len() / 2).filter(|pair| said(&[1, 2 * pair]) == "config-epoch");
        assert!(
            epochs
                .map(|pair| said(&[1, 2 * pair + 1]))
                .any(|said| said.parse() == Ok(epoch)),
            "{epoch}"
        );
    }
}

fn slots(sent: &Sent) {
    let info = "cluster_state:ok\r\ncluster_current_epoch:1\r\n";
    let asked = Address {
        host: String::new(),
        port: 0,
    };
    let info = Value::BulkString(info.into());
    let Ok(view) = View::read(info, &sent.value(), &asked) else {
        return;
    };
    // The decoded ranges have the order in which they were sent; a range whose master has no host
    // is left out.
    let mut ranges = 0..sent.len(&[]);
    for (first, last, master) in view.ranges {
        let is_it = |range: usize| {
            let named = match sent.find(&[range, 2, 0]) {
                Some(Value::Nil) => master.host.is_empty(),
                Some(Value::BulkString(bytes)) => String::from_utf8_lossy(bytes) == master.host,
                Some(Value::SimpleString(text)) => *text == master.host,
                _ => false,
            };
            let numbers = [(0, i64::from(first)), (1, i64::from(last))];
            let slots =
                numbers.map(|(at, slot)| sent.find(&[range, at]) == Some(&Value::Int(slot)));
            let port = sent.find(&[range, 2, 1]) == Some(&Value::Int(i64::from(master.port)));
            named && port && slots == [true, true]
        };
        assert!(
            first < SLOTS && last < SLOTS && ranges.any(is_it),
            "{master} was never sent"
        );
    }
}

fn refusal(sent: &Sent) {
    let Err(refused) = sent.value().extract_error() else {
        return;
    };
    let code = refused.code().map(str::to_owned);
    let of_script = refused
        .detail()
        .is_some_and(|detail| detail.contains("script: "));
    let error = failure::of_call("10.0.0.1:6379", refused);
    let told = error.to_string();
    check_text(&told);
    assert!(told.contains("10.0.0.1:6379"), "{told}");
    let code = code.expect("each refusal of a server has a code");
    match code.as_str() {
        // The server returns these errors before a script runs, so nothing was applied. After an
        // error inside a script this is unknown, unless scripts raise that error before their first
        // write.
        "NOSCRIPT" | "LOADING" | "READONLY" => {
            assert_eq!(error.was_applied(), Applied::No, "{told}")
        }
        _ if of_script && error.kind() == ErrorKind::Server => {
            assert!(
                matches!(code.as_str(), "BADKEYS" | "BADNOW" | "WRONGTYPE")
                    || error.was_applied() == Applied::Unknown
            );
        }
        _ => {}
    }
}
