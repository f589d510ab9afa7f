//! Which names of time zones are those of places.

/// Whether an IANA name stands for a place or for UTC. `EST`, `GMT+0` and `Etc/GMT-5` are also IANA
/// names.
pub(crate) fn is_place(name: &str) -> bool {
    match name.split_once('/') {
        Some((area, rest)) => area != "Etc" || rest == "UTC",
        None => name == "UTC",
    }
}
