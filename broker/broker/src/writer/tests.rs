// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The writer alone: what a batch stores, and whom it answers.

use std::sync::Mutex;

use weir_network::ConnectionState;

use super::*;
use crate::config::BrokerConfig;
use crate::ids::StableIds;
use crate::orders::OrderAnswer;
use crate::postgres::PostgresCluster;
use crate::store::random_digits;
use crate::test_config;
use crate::tunnel_numbers::{EntryNumber, EntryNumbers, TUNNELS_PER_ROUTER_MAX};

/// Longer than a test takes.
const LEASE: Duration = Duration::from_secs(600);

fn state(config: &BrokerConfig) -> BrokerState {
    BrokerState::new(config, &mut StableIds::default(), Vec::new(), Vec::new()).unwrap()
}

/// Returns a writer that does not lead yet, and the outcomes of its steps.
async fn writer(url: &str) -> (Writer, mpsc::UnboundedReceiver<WriterOrder>) {
    let config = test_config::with(&[test_config::TRIANGLE]);
    let (changed, committed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let nodes = NodeStarter::simulated(&config, &changed);
    let (outcomes, done) = mpsc::unbounded_channel();
    let writer = Writer {
        state: Arc::new(Mutex::new(state(&config))),
        store: BrokerStore::open(url, "writer", LEASE).await.unwrap(),
        nodes: None,
        kept_nodes: KeptNodes::default(),
        policing: None,
        outcomes,
        served: BTreeMap::new(),
        settings: WriterSettings {
            router_patience: Duration::from_secs(5),
            rearrange: 1,
            preempt: true,
            changed,
            committed,
            nodes,
        },
        restore_at: None,
        restoring: None,
        looks_at_routers: false,
        rearranging: None,
        lease_ends: None,
    };
    (writer, done)
}

/// Orders a connection of 40 Mbit/s, of which the short link has room for one.
fn create(port: u16, fields: &str) -> (WriterOrder, oneshot::Receiver<OrderAnswer>) {
    let text = format!(
        r#"{{ "network": "n", "from": "x", "to": "y", "rate": "40Mbit", "protocol": "udp",
              "to_port": {port}{fields} }}"#
    );
    let requested = Box::new(serde_json::from_str(&text).unwrap());
    let (answer, answered) = oneshot::channel();
    let waiting = WaitingCaller { since: Instant::now(), by: "t".to_owned(), answer };
    (WriterOrder::Create { requested, key: None, waiting }, answered)
}

/// Executes an order, and the steps that follow from it until it is answered.
async fn ordered(
    writer: &mut Writer,
    done: &mut mpsc::UnboundedReceiver<WriterOrder>,
    (order, mut answered): (WriterOrder, oneshot::Receiver<OrderAnswer>),
) -> OrderAnswer {
    writer.execute(vec![order], false).await.unwrap();
    loop {
        if let Ok(answer) = answered.try_recv() {
            return answer;
        }
        let outcome = done.recv().await.unwrap();
        writer.execute(vec![outcome], false).await.unwrap();
    }
}

/// Goal: nobody loses its room for a request that gets no tunnel, since the router of its entry has
/// no number for one more.
#[tokio::test]
async fn nobody_gives_room_for_a_tunnel_without_a_number() {
    let file = format!("weir-t-writer-{}", random_digits().unwrap());
    let file = std::env::temp_dir().join(file);
    let (mut writer, mut done) = writer(&format!("sqlite:{}?mode=rwc", file.display())).await;
    assert!(writer.store.try_take().await.unwrap());
    writer.lead();
    let patient = create(1, r#", "priority": 9, "delay_max": "2ms""#);
    let patient = ordered(&mut writer, &mut done, patient).await.unwrap();
    let node = writer.locked(|state| {
        let entries = state.records[&patient].entries;
        let EntryNumber { node, .. } = entries.forward.unwrap();
        for number in 2..=TUNNELS_PER_ROUTER_MAX {
            let forward = Some(EntryNumber { node, number, is_store_wide: false });
            state.numbers.take(EntryNumbers { forward, backward: None });
        }
        node
    });
    let urgent = || create(2, r#", "delay_max": "2ms""#);
    let refusal = ordered(&mut writer, &mut done, urgent()).await.unwrap_err();
    assert_eq!(refusal.error.code, ErrorCode::Busy, "{}", refusal.error.message);
    let state = writer.locked(|state| state.get(patient).map(|(known, _)| known.state));
    assert_eq!(state, Some(ConnectionState::Active));
    // With a number it takes the room.
    let forward = Some(EntryNumber { node, number: 2, is_store_wide: false });
    writer.locked(|state| state.numbers.give_back(EntryNumbers { forward, backward: None }));
    ordered(&mut writer, &mut done, urgent()).await.unwrap();
    let state = writer.locked(|state| state.get(patient).map(|(known, _)| known.state));
    assert_eq!(state, Some(ConnectionState::Broken));
    writer.store.release().await.unwrap();
    for end in ["", "-wal", "-shm"] {
        let _gone = std::fs::remove_file(format!("{}{end}", file.display()));
    }
}

/// Returns a writer that leads, on a store in a file.
async fn leading() -> (Writer, mpsc::UnboundedReceiver<WriterOrder>, std::path::PathBuf) {
    let file = std::env::temp_dir().join(format!("weir-t-writer-{}", random_digits().unwrap()));
    let (mut writer, done) = writer(&format!("sqlite:{}?mode=rwc", file.display())).await;
    assert!(writer.store.try_take().await.unwrap());
    writer.lead();
    (writer, done, file)
}

fn remove_store(file: &std::path::Path) {
    for end in ["", "-wal", "-shm"] {
        let _gone = std::fs::remove_file(format!("{}{end}", file.display()));
    }
}

fn keyed(port: u16) -> (WriterOrder, oneshot::Receiver<OrderAnswer>) {
    let (mut order, answered) = create(port, "");
    if let WriterOrder::Create { key, .. } = &mut order {
        *key = Some(format!("t/{port}"));
    }
    (order, answered)
}

fn failure() -> Result<(), NodeFault> {
    Err(NodeFault::Unreachable("a".to_owned(), "rebooting".to_owned()))
}

/// Goal: a request that is sent again is answered as the first one is, and no sooner, whether
/// routers take the connection or not. While it is taken back, and after that, it is a conflict.
#[tokio::test]
async fn a_repeated_request_waits_for_the_outcome() {
    let (mut writer, mut done, file) = leading().await;
    for (port, is_taken) in [(1, true), (2, false)] {
        let ((first, mut one), (same, mut two), (later, mut three)) =
            (keyed(port), keyed(port), keyed(port));
        writer.execute(vec![first, same], false).await.unwrap();
        assert!(one.try_recv().is_err() && two.try_recv().is_err());
        let WriterOrder::Done { id, nodes, .. } = done.recv().await.unwrap() else {
            panic!("not an outcome");
        };
        let outcome = if is_taken { Ok(()) } else { failure() };
        let outcome = WriterOrder::Done { id, outcome, nodes };
        // Its outcome comes in the same batch.
        writer.execute(vec![later, outcome], false).await.unwrap();
        let answers = [&mut one, &mut two, &mut three].map(|of| of.try_recv().unwrap());
        let code = |answer: &OrderAnswer| answer.as_ref().err().map(|of| of.error.code);
        let expected = if is_taken { None } else { Some(ErrorCode::NotRunning) };
        assert!(answers.iter().all(|answer| code(answer) == expected), "{answers:?}");
        let (again, mut answered) = keyed(port);
        writer.execute(vec![again], false).await.unwrap();
        let expected = if is_taken { None } else { Some(ErrorCode::Conflict) };
        assert_eq!(code(&answered.try_recv().unwrap()), expected);
    }
    remove_store(&file);
}

/// Goal: while others are moved to make room for a request, the same request sent again takes
/// nothing from anybody. If a router of the moved connection is silent, whoever asked is told, and
/// room is made for others; the move itself goes on.
#[tokio::test]
async fn a_move_that_hangs_holds_up_nobody() {
    let (mut writer, mut done, file) = leading().await;
    let moved = ordered(&mut writer, &mut done, create(1, "")).await.unwrap();
    let urgent = || {
        let (mut order, answered) = create(2, r#", "delay_max": "2ms""#);
        if let WriterOrder::Create { key, .. } = &mut order {
            *key = Some("t/urgent".to_owned());
        }
        (order, answered)
    };
    let ((first, mut one), (same, mut two)) = (urgent(), urgent());
    writer.execute(vec![first, same], false).await.unwrap();
    assert_eq!(two.try_recv().unwrap().unwrap_err().error.code, ErrorCode::Busy);
    assert!(one.try_recv().is_err());
    let routes = done.recv().await.unwrap();
    writer.execute(vec![routes], false).await.unwrap();
    done.recv().await.unwrap();
    let outcome = WriterOrder::Done { id: moved, outcome: failure(), nodes: Duration::ZERO };
    writer.execute(vec![outcome], false).await.unwrap();
    assert_eq!(one.try_recv().unwrap().unwrap_err().error.code, ErrorCode::NotRunning);
    assert!(writer.rearranging.is_none());
    // The move succeeds after all. The key is as good as new.
    let (again, mut answered) = urgent();
    while answered.try_recv().is_err() && writer.locked(|state| state.work(moved).is_some()) {
        let outcome = done.recv().await.unwrap();
        writer.execute(vec![outcome], false).await.unwrap();
    }
    ordered(&mut writer, &mut done, (again, answered)).await.unwrap();
    remove_store(&file);
}

/// Goal: a start by the calendar that routers do not take is in the history, with the reason, once.
#[tokio::test]
async fn a_start_that_fails_is_in_the_history() {
    let (mut writer, mut done, file) = leading().await;
    let start = clock::text(clock::now() + weir_units::Nanos::from_secs(60));
    let reservation = create(1, &format!(r#", "start": "{start}""#));
    let id = ordered(&mut writer, &mut done, reservation).await.unwrap();
    writer.locked(|state| state.begin_scheduled(id)).unwrap();
    for _attempt in 0..3 {
        let outcome = WriterOrder::Done { id, outcome: failure(), nodes: Duration::ZERO };
        writer.execute(vec![outcome], false).await.unwrap();
    }
    let query = crate::history::HistoryQuery::default();
    let page = writer.locked(|state| state.history.page(&query, |_| true));
    let failed: Vec<_> = page.iter().filter(|of| of.change == HistoryChange::Failed).collect();
    assert_eq!(failed.len(), 1);
    assert!(failed[0].detail.as_ref().unwrap().contains("rebooting"));
    remove_store(&file);
}

/// Goal: who removes a connection whose change fails for good waits for the removal, and not for
/// the step.
#[tokio::test]
async fn a_connection_is_removed_though_its_change_fails() {
    let (mut writer, mut done, file) = leading().await;
    let id = ordered(&mut writer, &mut done, create(1, "")).await.unwrap();
    let waiting = || {
        let (answer, answered) = oneshot::channel();
        (WaitingCaller { since: Instant::now(), by: "t".to_owned(), answer }, answered)
    };
    let failed = || {
        let fault = NodeFault::Unreachable("a".to_owned(), "it is off".to_owned());
        vec![WriterOrder::Done { id, outcome: Err(fault), nodes: Duration::ZERO }]
    };
    let (waits, mut changed) = waiting();
    let change = serde_json::from_str(r#"{ "avoid": ["short"] }"#).unwrap();
    writer.execute(vec![WriterOrder::Change { id, change, waiting: waits }], false).await.unwrap();
    let routes = done.recv().await.unwrap();
    writer.execute(vec![routes], false).await.unwrap();
    done.recv().await.unwrap();
    writer.execute(failed(), false).await.unwrap();
    assert!(changed.try_recv().unwrap().is_err());
    let (waits, mut removed) = waiting();
    writer.execute(vec![WriterOrder::Remove { id, waiting: waits }], false).await.unwrap();
    // One step at a time: the entry is tried once more.
    done.recv().await.unwrap();
    assert!(done.try_recv().is_err());
    writer.execute(failed(), false).await.unwrap();
    removed.try_recv().unwrap_err();
    let removal = done.recv().await.unwrap();
    writer.execute(vec![removal], false).await.unwrap();
    assert_eq!(removed.try_recv().unwrap().unwrap(), id);
    assert!(writer.locked(|state| state.get(id).is_none()));
    writer.store.release().await.unwrap();
    remove_store(&file);
}

/// The broker with the lease, with routers that take everything at once.
struct Leader {
    state: BrokerState,
    store: BrokerStore,
}

impl Leader {
    /// Takes over what others have stored, and ends all steps.
    async fn settle(&mut self) {
        let news = self.store.begin().await.unwrap();
        self.state.follow(news.changes).unwrap();
        let mut rows = Vec::new();
        for id in self.state.under_way() {
            while self.state.finish(id, true).unwrap() == StepProgress::Next {}
            rows.push(RowChange::PutConnection(Box::new(self.state.row(id).unwrap())));
        }
        self.store.commit(&rows).await.unwrap();
    }
}

/// Goal: a move that makes room settles, and its broker leaves, between another broker's look and
/// its taking the lease. The request for which the move was made is then stored and answered.
#[tokio::test]
async fn a_request_with_room_made_is_stored_while_the_lease_is_taken() {
    let Some(cluster) = PostgresCluster::start("takeover") else { return };
    let config = test_config::with(&[test_config::TRIANGLE]);
    let store = BrokerStore::open(&cluster.url(), "leader", LEASE).await.unwrap();
    let mut leader = Leader { state: state(&config), store };
    assert!(leader.store.try_take().await.unwrap());
    let (mut writer, mut done) = writer(&cluster.url()).await;
    writer.execute(vec![create(1, "").0], false).await.unwrap();
    leader.settle().await;
    let (wanted, mut answered) = create(2, r#", "delay_max": "2ms""#);
    writer.execute(vec![wanted], false).await.unwrap();
    assert!(writer.rearranging.is_some() && !writer.leads());
    leader.settle().await;
    leader.store.release().await.unwrap();
    assert!(writer.store.try_take().await.unwrap());
    writer.take_over().await.unwrap();
    let mut stored = 0;
    let mut late = BrokerStore::open(&cluster.url(), "late", LEASE).await.unwrap();
    late.read(false).await.unwrap();
    let count = |_| {
        stored += 1;
        Ok::<_, BrokerError>(())
    };
    late.read_connections(count).await.unwrap();
    late.end_reading().await.unwrap();
    assert_eq!(stored, 2);
    assert!(writer.leads());
    let outcome = done.recv().await.unwrap();
    writer.execute(vec![outcome], false).await.unwrap();
    answered.try_recv().unwrap().unwrap();
}
