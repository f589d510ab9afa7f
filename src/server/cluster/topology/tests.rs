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
    Topology::new(vec![seed.expect("a URL").into()])
}

/// A view in which the first port serves the slots 0 to 99, and the second port the others.
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
    topology
        .apply(std::slice::from_ref(view))
        .expect("addresses");
}

#[test]
fn a_master_without_slots_is_left_and_others_stay() {
    let topology = topology();
    assert!(topology.master_of(0).is_none());
    apply(&topology, &view(1, [1, 2]));
    let (low, high) = (topology.master_of(0), topology.master_of(100));
    let (low, high) = (low.expect("known"), high.expect("known"));
    apply(&topology, &view(2, [3, 2]));
    // One server may know the new epoch before it knows the new master.
    assert!(!low.is_superseded() && topology.has(&low));
    apply(&topology, &view(2, [3, 2]));
    assert!(low.is_superseded() && !high.is_superseded());
    assert!(!topology.has(&low));
    assert_eq!(port_of(&topology, 99).as_deref(), Some("3"));
    assert!(topology.master_of(100).expect("known").is_same(&high));
    // The master comes back: calls to it must not end at once.
    apply(&topology, &view(3, [1, 2]));
    assert!(!topology.master_of(0).expect("known").is_superseded());
}

#[test]
fn a_redirection_to_a_missing_master_keeps_that_master() {
    let topology = topology();
    apply(&topology, &view(1, [1, 2]));
    let low = topology.master_of(0).expect("known");
    apply(&topology, &view(2, [3, 2]));
    topology.moved(0, &at(1)).expect("an address");
    apply(&topology, &view(2, [3, 2]));
    assert!(!low.is_superseded() && topology.has(&low));
    apply(&topology, &view(2, [3, 2]));
    assert!(low.is_superseded());
}

#[test]
fn the_view_that_most_servers_share_counts() {
    let topology = topology();
    let (new, old) = (view(2, [3, 2]), view(2, [1, 2]));
    topology
        .apply(&[new.clone(), old.clone(), new.clone()])
        .expect("addresses");
    let promoted = topology.master_of(0).expect("known");
    assert_eq!(port_of(&topology, 0).as_deref(), Some("3"));
    // A server that lags is asked again and again, while another one knows better.
    for _ in 0..4 {
        topology
            .apply(&[old.clone(), old.clone(), new.clone()])
            .expect("addresses");
        assert!(!promoted.is_superseded());
    }
}

#[tokio::test(start_paused = true)]
async fn an_older_epoch_counts_if_the_newer_one_stays_away() {
    let topology = topology();
    apply(&topology, &view(7, [1, 2]));
    for _ in 0..2 * OLDER_ROUNDS {
        apply(&topology, &view(6, [3, 4]));
        assert_eq!(port_of(&topology, 0).as_deref(), Some("1"));
    }
    tokio::time::advance(OLDER_TIME).await;
    apply(&topology, &view(7, [1, 2]));
    for _ in 0..2 * OLDER_ROUNDS {
        apply(&topology, &view(6, [3, 4]));
    }
    assert_eq!(port_of(&topology, 0).as_deref(), Some("1"));
    tokio::time::advance(OLDER_TIME).await;
    apply(&topology, &view(6, [3, 4]));
    assert_eq!(port_of(&topology, 0).as_deref(), Some("3"));
}

#[test]
fn a_server_of_the_url_is_asked_in_each_round() {
    let topology = topology();
    assert_eq!(topology.to_ask(), [at(1)]);
    let mut many = view(1, [2, 3]);
    many.nodes.extend((4..20).map(at));
    apply(&topology, &many);
    for _ in 0..20 {
        let asked = topology.to_ask();
        assert!(asked.len() == ASKED_NODES && asked.contains(&at(1)));
    }
}

#[test]
fn a_redirection_changes_one_slot_only() {
    let topology = topology();
    apply(&topology, &view(1, [1, 2]));
    let mut changes = topology.changes();
    topology.moved(7, &at(9)).expect("an address");
    assert!(changes.has_changed().expect("it lives"));
    changes.mark_unchanged();
    assert_eq!(port_of(&topology, 7).as_deref(), Some("9"));
    assert_eq!(port_of(&topology, 8).as_deref(), Some("1"));
    let named = topology.master_of(7).expect("known");
    // A view of the same epoch may be older than the redirection, so no call there is ended.
    apply(&topology, &view(1, [1, 2]));
    assert!(!named.is_superseded());
    assert!(topology.node(&at(9)).expect("known").is_same(&named));
    changes.mark_unchanged();
    apply(&topology, &view(1, [1, 2]));
    assert!(!changes.has_changed().expect("it lives"), "nothing changed");
}
