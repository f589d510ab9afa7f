use redis::IntoConnectionInfo;

use super::*;

fn at(port: u16) -> Address {
    Address {
        host: "127.0.0.1".to_owned(),
        port,
    }
}

fn topology() -> Topology {
    let seed = "redis://127.0.0.1:1/".into_connection_info();
    Topology::new(vec![seed.expect("a URL")])
}

/// A view in which the first port serves slot 0 to 99, and the second one the others.
fn view(epoch: u64, ports: [u16; 2]) -> View {
    let [low, high] = ports.map(at);
    View {
        epoch,
        is_ok: true,
        ranges: vec![(0, 99, low.clone()), (100, SLOTS - 1, high.clone())],
        nodes: BTreeSet::from([low, high]),
    }
}

fn port_of(topology: &Topology, slot: u16) -> Option<String> {
    let master = topology.master_of(slot)?;
    master
        .address
        .rsplit_once(':')
        .map(|(_, port)| port.to_owned())
}

fn apply(topology: &Topology, view: &View) {
    topology.apply(view).expect("addresses");
}

#[test]
fn a_master_without_slots_is_superseded_and_others_stay() {
    let topology = topology();
    assert!(topology.master_of(0).is_none());
    apply(&topology, &view(1, [1, 2]));
    let (low, high) = (topology.master_of(0), topology.master_of(100));
    let (low, high) = (low.expect("known"), high.expect("known"));
    apply(&topology, &view(2, [3, 2]));
    assert!(low.is_superseded() && !high.is_superseded());
    assert_eq!(port_of(&topology, 99).as_deref(), Some("3"));
    assert!(topology.master_of(100).expect("known").is_same(&high));
    // It comes back: its calls must not end at once.
    apply(&topology, &view(3, [1, 2]));
    assert!(!topology.master_of(0).expect("known").is_superseded());
}

#[test]
fn an_older_view_counts_after_three_rounds_without_a_newer_one() {
    let topology = topology();
    apply(&topology, &view(7, [1, 2]));
    for _ in 1..OLDER_ROUNDS {
        apply(&topology, &view(6, [3, 4]));
        assert_eq!(port_of(&topology, 0).as_deref(), Some("1"));
    }
    apply(&topology, &view(7, [1, 2]));
    for _ in 1..OLDER_ROUNDS {
        apply(&topology, &view(6, [3, 4]));
    }
    assert_eq!(port_of(&topology, 0).as_deref(), Some("1"));
    apply(&topology, &view(6, [3, 4]));
    assert_eq!(port_of(&topology, 0).as_deref(), Some("3"));
}

#[test]
fn a_redirection_moves_one_slot() {
    let topology = topology();
    apply(&topology, &view(1, [1, 2]));
    let mut changes = topology.changes();
    topology.moved(7, &at(9)).expect("an address");
    assert!(changes.has_changed().expect("it lives"));
    changes.mark_unchanged();
    assert_eq!(port_of(&topology, 7).as_deref(), Some("9"));
    assert_eq!(port_of(&topology, 8).as_deref(), Some("1"));
    let named = topology.master_of(7).expect("known");
    // A view of the same epoch may be older than the redirection: no call there is ended.
    apply(&topology, &view(1, [1, 2]));
    assert!(!named.is_superseded());
    assert!(topology.node(&at(9)).expect("known").is_same(&named));
    changes.mark_unchanged();
    apply(&topology, &view(1, [1, 2]));
    assert!(!changes.has_changed().expect("it lives"), "nothing changed");
}
