// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queue of one node: whatever waits for it becomes one batch.
//!
//! The queue holds the items that the node is to have. A request changes them; the requests that
//! wait, up to [`BATCH_MAX`], are applied by one script and answered after one reading of the
//! node. They are taken in the order in which they came, so nobody starves. At an interval the node
//! is compared, and what somebody else changed is put right. The devices of its links are read then
//! too, and as soon as the router says that one of them has changed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};
use weir_broker_api_types::RouterState;
use weir_platform::inspect::without_plain_options;

use crate::item::{ItemChange, Items, NodeItem};
use crate::linux::NodeDriver;
use crate::ospf6::{self, RouterOspf};
use crate::physical::SshServer;
use crate::repair_log::RepairLog;
use crate::shell::{NodeShell, ShellAccess, ShellError};

/// A handle of the queue.
#[derive(Clone)]
pub(crate) struct NodeQueue {
    sender: mpsc::Sender<NodeRequest>,
    status: Arc<Mutex<QueuedNodeStatus>>,
}

/// State of a router as its queue knows it.
#[derive(Clone, Debug)]
pub(crate) struct QueuedNodeStatus {
    pub(crate) router: RouterState,
    /// Devices of links without a carrier; none before the first reading.
    pub(crate) devices_down: Option<BTreeSet<String>>,
    /// The time at which the first exchange without an answer began; none since the last answer.
    pub(crate) silent_since: Option<Instant>,
    /// Requests for changes.
    pub(crate) changes: u64,
    /// Requests for changes that failed.
    pub(crate) failed_changes: u64,
}

/// Settings of a queue.
#[derive(Clone)]
pub(crate) struct QueueSettings {
    /// Interval of the comparison.
    pub(crate) check: Duration,
    /// Notified when a link's device changes, when a silent router answers again, and when a node
    /// is found sound or unsound.
    pub(crate) changed: Arc<Notify>,
}

/// The configuration that a router is to have when its queue starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouterWants {
    pub(crate) items: Items,
    /// OSPFv3; none if its routes are the operator's.
    pub(crate) ospf: Option<RouterOspf>,
}

enum NodeRequest {
    Change { changes: Vec<ItemChange>, done: oneshot::Sender<Result<(), NodeFault>> },
    Counters { device: String, done: oneshot::Sender<Result<Value, NodeFault>> },
}

/// The reason why a router did not take its configuration.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum NodeFault {
    /// No exchange with the node.
    #[error("router \"{0}\" does not answer: {1}")]
    Unreachable(String, String),
    /// The node was read back and has something else.
    #[error("router \"{0}\" did not take {1}: {2}")]
    NotApplied(String, String, String),
    /// The node does not let this broker configure it.
    #[error("router \"{0}\" refuses this broker: {1}")]
    Fenced(String, String),
}

impl NodeQueue {
    /// Starts the queue of a router.
    pub(crate) fn start(
        server: SshServer,
        driver: impl NodeDriver + Send + 'static,
        access: ShellAccess,
        RouterWants { items, ospf }: RouterWants,
        settings: QueueSettings,
        repairs: RepairLog,
    ) -> Self {
        let (sender, requests) = mpsc::channel(WAITING_MAX);
        let name = server.name.clone();
        let router_state = RouterState { name, reachable: false, repaired: 0, fault: None };
        let status = Arc::new(Mutex::new(QueuedNodeStatus::new(router_state, None)));
        let QueueSettings { check, changed } = settings;
        let node = ConfiguredNode {
            server,
            driver,
            access,
            wanted: items,
            ospf,
            has_ospf: false,
            ospf_hung_at: None,
            actual: None,
            known: None,
            repairs,
            shell: None,
            links: Items::new(),
            status: Arc::clone(&status),
            changed,
            link_event: Arc::new(Notify::new()),
        };
        tokio::spawn(node.serve(requests, check));
        Self { sender, status }
    }

    /// Starts the queue of a router that is not there: it takes everything at once.
    pub(crate) fn simulate(name: &str) -> Self {
        let (sender, mut requests) = mpsc::channel(WAITING_MAX);
        let name = name.to_owned();
        let router = RouterState { name, reachable: true, repaired: 0, fault: None };
        let status = QueuedNodeStatus::new(router, Some(BTreeSet::new()));
        tokio::spawn(async move {
            while let Some(request) = requests.recv().await {
                // A caller that went away needs no answer.
                match request {
                    NodeRequest::Change { done, .. } => drop(done.send(Ok(()))),
                    NodeRequest::Counters { done, .. } => drop(done.send(Ok(Value::Null))),
                }
            }
        });
        Self { sender, status: Arc::new(Mutex::new(status)) }
    }

    /// Changes the items that the node is to have, and waits until it has them. After a failure
    /// they stay wanted: the caller takes them back.
    pub(crate) async fn change(&self, changes: Vec<ItemChange>) -> Result<(), NodeFault> {
        let (done, answer) = oneshot::channel();
        self.ask(NodeRequest::Change { changes, done }, answer).await
    }

    /// Changes items as [`Self::change`] does. The request has its place in the queue before this
    /// returns, unless the queue is full: then it takes one as soon as the future is polled.
    pub(crate) fn post(
        &self,
        changes: Vec<ItemChange>,
    ) -> impl Future<Output = Result<(), NodeFault>> + Send + use<> {
        let (done, answer) = oneshot::channel();
        let unsent = match self.sender.try_send(NodeRequest::Change { changes, done }) {
            Err(TrySendError::Full(request)) => Some(request),
            // With a queue that ended, the sender of the answer is dropped.
            Ok(()) | Err(TrySendError::Closed(_)) => None,
        };
        let queue = self.clone();
        async move {
            match unsent {
                Some(request) => queue.ask(request, answer).await,
                None => answer.await.map_err(|_| queue.ended())?,
            }
        }
    }

    /// Reads the counters of a device's queueing discipline.
    pub(crate) async fn counters(&self, device: String) -> Result<Value, NodeFault> {
        let (done, answer) = oneshot::channel();
        self.ask(NodeRequest::Counters { device, done }, answer).await
    }

    /// Returns how many requests wait.
    pub(crate) fn waiting(&self) -> usize {
        self.sender.max_capacity() - self.sender.capacity()
    }

    /// Returns the state of the node as the queue knows it.
    pub(crate) fn status(&self) -> QueuedNodeStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn ask<T>(
        &self,
        request: NodeRequest,
        answer: oneshot::Receiver<Result<T, NodeFault>>,
    ) -> Result<T, NodeFault> {
        self.sender.send(request).await.map_err(|_| self.ended())?;
        answer.await.map_err(|_| self.ended())?
    }

    fn ended(&self) -> NodeFault {
        NodeFault::Unreachable(self.status().router.name, "its queue ended".to_owned())
    }
}

impl QueuedNodeStatus {
    fn new(router: RouterState, devices_down: Option<BTreeSet<String>>) -> Self {
        Self { router, devices_down, silent_since: None, changes: 0, failed_changes: 0 }
    }

    /// Returns why the node does not answer; none if it does, or was not asked yet.
    fn silence(&self) -> Option<NodeFault> {
        let RouterState { name, fault, .. } = &self.router;
        let fault = fault.as_ref().filter(|_| !self.router.reachable)?;
        Some(NodeFault::Unreachable(name.clone(), fault.clone()))
    }
}

/// Changes, and the channel to the caller that waits until the node has them.
type WaitingChange = (Vec<ItemChange>, oneshot::Sender<Result<(), NodeFault>>);

/// The node behind a queue.
struct ConfiguredNode<D> {
    server: SshServer,
    driver: D,
    access: ShellAccess,
    wanted: Items,
    ospf: Option<RouterOspf>,
    /// True if it had all of OSPFv3 when that was last read.
    has_ospf: bool,
    /// The time at which it last gave no answer about OSPFv3.
    ospf_hung_at: Option<Instant>,
    /// Items that the node had when it was last read; none if that is not known.
    actual: Option<Items>,
    /// Items of the last reading while `actual` is none: the next reading is compared with them.
    known: Option<Items>,
    repairs: RepairLog,
    shell: Option<NodeShell>,
    /// Links as they were when their classes were last read.
    links: Items,
    status: Arc<Mutex<QueuedNodeStatus>>,
    changed: Arc<Notify>,
    /// Notified when the router says that a link's device changed.
    link_event: Arc<Notify>,
}

impl<D: NodeDriver + Send> ConfiguredNode<D> {
    async fn serve(mut self, mut requests: mpsc::Receiver<NodeRequest>, check: Duration) {
        let mut ticks = tokio::time::interval_at(Instant::now(), check);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut batch = Vec::new();
        let link_event = Arc::clone(&self.link_event);
        // Comparisons because of events: the first at once, then at most one in each
        // [`EVENT_PAUSE`].
        let (mut next, mut due) = (Instant::now(), None);
        loop {
            tokio::select! {
                biased;
                // First, so that requests without end do not keep failures unseen.
                begun = ticks.tick() => {
                    self.compare().await;
                    // The next tick would be due at once, and no request would have its turn.
                    if begun.elapsed() >= check {
                        ticks.reset();
                    }
                }
                taken = requests.recv_many(&mut batch, BATCH_MAX) => {
                    if taken == 0 {
                        return;
                    }
                    self.execute(std::mem::take(&mut batch)).await;
                }
                // Last, so that a device that comes and goes keeps no request waiting.
                () = link_event.notified(), if due.is_none() => due = Some(next),
                () = tokio::time::sleep_until(due.unwrap_or(next)), if due.is_some() => {
                    due = None;
                    self.compare().await;
                    next = Instant::now() + EVENT_PAUSE;
                }
            }
        }
    }

    async fn execute(&mut self, batch: Vec<NodeRequest>) {
        let (mut waiting, mut readers) = (Vec::new(), Vec::new());
        for request in batch {
            match request {
                NodeRequest::Change { changes, done } => {
                    for (key, edit) in &changes {
                        edit.apply(key, &mut self.wanted);
                    }
                    waiting.push((changes, done));
                }
                NodeRequest::Counters { device, done } => readers.push((device, done)),
            }
        }
        if !waiting.is_empty() {
            self.change(waiting).await;
        }
        for (device, done) in readers {
            // To reach a silent router takes seconds, for which changes would wait. The comparison
            // tries it.
            let counters = match self.note(|status| status.silence()) {
                Some(fault) => Err(fault),
                None => self.read_counters(&device).await,
            };
            // A caller that went away needs no answer.
            let _gone = done.send(counters);
        }
    }

    async fn change(&mut self, waiting: Vec<WaitingChange>) {
        let applied = self.converge().await;
        for (changes, done) in waiting {
            let taken = applied.clone().and_then(|said| self.verify(&changes, &said));
            self.note(|status| {
                status.changes += 1;
                status.failed_changes += u64::from(taken.is_err());
            });
            let _gone = done.send(taken);
        }
    }

    /// Compares the node with what is wanted, and repairs it.
    async fn compare(&mut self) {
        self.forget();
        // After an error, its fault is in the status already.
        if let Ok(said) = self.converge().await {
            let untaken = self.untaken(&said);
            let routing = self.compare_ospf().await;
            self.note(|status| {
                // A silent router has a fault of its own.
                if status.router.reachable {
                    status.router.fault = untaken.or(routing).map(|fault| fault.to_string());
                }
            });
        }
        self.repairs.tell();
    }

    /// Returns why the router does not have one of its items; none if it has all.
    fn untaken(&self, said: &str) -> Option<NodeFault> {
        let mut wanted = self.wanted.iter();
        let untaken = wanted.find(|(key, item)| self.actual_item(key) != Some(item));
        untaken.map(|(key, _)| self.not_applied(key, said))
    }

    /// Compares OSPFv3 with what it is to be, and repairs it. Returns why it is still different. A
    /// router whose OSPFv3 hangs is asked again only after a while, since requests wait meanwhile.
    async fn compare_ospf(&mut self) -> Option<NodeFault> {
        let ospf = self.ospf.clone()?;
        if self.ospf_hung_at.is_some_and(|at| at.elapsed() < OSPF_AGAIN_AFTER) {
            return Some(self.not_applied("ospf6", ospf6::NO_ANSWER));
        }
        self.ospf_hung_at = None;
        let mut said = String::new();
        for _attempt in 0..ATTEMPTS {
            // A fault is in the status.
            let answer = self.run(&ospf6::reading(&ospf)).await.ok()?;
            if answer.trim_end().ends_with(ospf6::NO_ANSWER) {
                self.ospf_hung_at = Some(Instant::now());
                return Some(self.not_applied("ospf6", ospf6::NO_ANSWER));
            }
            let difference = ospf6::read(&answer, &ospf);
            if difference.is_none() {
                self.has_ospf = true;
                return None;
            }
            if std::mem::take(&mut self.has_ospf) {
                self.repaired(["ospf6"]);
            }
            said = self.run(&ospf6::script(&ospf, &difference)).await.ok()?;
        }
        Some(self.not_applied("ospf6", &said))
    }

    /// Returns the fault of an item. A foreign object in its place explains it better than the
    /// commands' output.
    fn not_applied(&self, what: &str, said: &str) -> NodeFault {
        let said = match self.actual_item(what) {
            Some(NodeItem::Foreign(words)) => words,
            _ => said,
        };
        let said = if said.is_empty() { "it says nothing about it" } else { said };
        let said: String = said.chars().take(SAID_MAX).collect();
        NodeFault::NotApplied(self.server.name.clone(), what.to_owned(), said.trim().to_owned())
    }

    /// Brings the node to what is wanted, and returns what the commands said.
    async fn converge(&mut self) -> Result<String, NodeFault> {
        let mut said = String::new();
        for _attempt in 0..ATTEMPTS {
            if self.actual.is_none() {
                self.read_links().await?;
                self.read_and_note().await?;
            }
            let actual = self.actual.get_or_insert_default();
            let script = self.driver.plan(&self.wanted, actual);
            if script.is_empty() {
                return Ok(said);
            }
            let puts_links = self.wanted.iter().any(|(key, item)| {
                matches!(item, NodeItem::Link(_)) && item.replaces(actual.get(key))
            });
            // The script touches nothing that is as wanted: if that differs in the next reading,
            // somebody else has changed it.
            self.forget();
            said = self.run(&script).await?;
            if puts_links {
                self.read_links().await?;
            }
            self.read_and_note().await?;
        }
        Ok(said)
    }

    /// Reads the node, and notes the items that were as wanted and that somebody else has changed.
    /// A router that was rebooted has lost all of them.
    async fn read_and_note(&mut self) -> Result<(), NodeFault> {
        let actual = self.read().await?;
        let changed: Vec<String> = match self.known.take() {
            Some(known) => changed(&known, &self.wanted, &actual).map(str::to_owned).collect(),
            None => Vec::new(),
        };
        self.actual = Some(actual);
        if !changed.is_empty() {
            self.repaired(changed.iter().map(String::as_str));
        }
        Ok(())
    }

    fn repaired<'k>(&mut self, keys: impl IntoIterator<Item = &'k str>) {
        // Each repair that is counted has an entry of its own in the history.
        let is_first = self.repairs.is_empty();
        self.repairs.add(keys);
        self.note(|status| status.router.repaired += u64::from(is_first));
    }

    /// Forgets what the node has, so that it is read again.
    fn forget(&mut self) {
        if let Some(actual) = self.actual.take() {
            self.known = Some(actual);
        }
    }

    /// Returns an error if the node, as read, does not have these changes.
    fn verify(&self, changes: &[ItemChange], said: &str) -> Result<(), NodeFault> {
        let unmet = changes.iter().find(|(key, edit)| !edit.is_met(self.actual_item(key)));
        unmet.map_or(Ok(()), |(key, _)| Err(self.not_applied(key, said)))
    }

    fn actual_item(&self, key: &str) -> Option<&NodeItem> {
        self.actual.as_ref()?.get(key)
    }

    async fn read(&mut self) -> Result<Items, NodeFault> {
        let script = self.driver.reading();
        let answer = self.run(&script).await?;
        let read = self.driver.read(&answer);
        let mut items = read.map_err(|what| {
            self.note(|status| status.router.fault = Some(what.clone()));
            NodeFault::Unreachable(self.server.name.clone(), what)
        })?;
        // Here links say only that they have a tree. Its classes are read at the comparison.
        items.retain(|key, item| match (&item, self.links.get(key)) {
            (NodeItem::Link(_), Some(read)) => {
                *item = read.clone();
                true
            }
            (NodeItem::Link(_), None) => false,
            _ => true,
        });
        // This reading does not see foreign roots: those of the last reading of links are kept.
        let foreign = self.links.iter().filter(|(_, link)| matches!(link, NodeItem::Foreign(_)));
        items.extend(foreign.map(|(key, link)| (key.clone(), link.clone())));
        Ok(items)
    }

    /// Reads the links' devices and the classes there.
    async fn read_links(&mut self) -> Result<(), NodeFault> {
        let script = self.driver.reading_links(&self.wanted);
        let answer = self.run(&script).await?;
        let read = self.driver.read_links(&answer, &self.wanted);
        self.links = read.items;
        let changed = self.note(|status| {
            let before = status.devices_down.replace(read.devices_down.clone());
            before.as_ref() != Some(&read.devices_down)
        });
        if changed {
            self.changed.notify_one();
        }
        Ok(())
    }

    async fn read_counters(&mut self, device: &str) -> Result<Value, NodeFault> {
        let answer = self.run(&format!("tc -s -j qdisc show dev {device}")).await?;
        serde_json::from_str(&without_plain_options(&answer)).map_err(|error| {
            NodeFault::Unreachable(self.server.name.clone(), format!("{device}: {error}"))
        })
    }

    /// Runs a script in the kept shell, which is opened if there is none. A kept shell that is
    /// broken is opened once more: the node may have closed it.
    async fn run(&mut self, script: &str) -> Result<String, NodeFault> {
        let kept = self.shell.is_some();
        let begun = Instant::now();
        match self.run_once(script).await {
            Err(ShellError::Broken(_)) if kept => {
                self.forget();
                let again = self.run_once(script).await;
                again.map_err(|error| self.fault(error, begun))
            }
            Err(error) => Err(self.fault(error, begun)),
            Ok(said) => Ok(said),
        }
    }

    async fn run_once(&mut self, script: &str) -> Result<String, ShellError> {
        let mut shell = match self.shell.take() {
            Some(shell) => shell,
            None => {
                let shell = NodeShell::open(&self.server, &self.access).await?;
                let watch = self.driver.watch(&self.wanted);
                // Without a watch, changes of links are seen at the interval.
                let _none = shell.watch(watch, Arc::clone(&self.link_event)).await;
                shell
            }
        };
        let before = self.actual.as_ref().or(self.known.as_ref()).map_or(0, Items::len);
        let said = shell.run(script, self.wanted.len() + before).await?;
        self.shell = Some(shell);
        let is_back = self.note(|status| {
            status.silent_since = None;
            let is_back = !std::mem::replace(&mut status.router.reachable, true);
            if is_back {
                status.router.fault = None;
            }
            is_back
        });
        if is_back {
            self.changed.notify_one();
        }
        Ok(said)
    }

    fn fault(&mut self, error: ShellError, begun: Instant) -> NodeFault {
        self.forget();
        let text = error.to_string();
        self.note(|status| {
            status.router.reachable = false;
            status.silent_since.get_or_insert(begun);
            status.router.fault = Some(text.clone());
        });
        match error {
            ShellError::Broken(text) => NodeFault::Unreachable(self.server.name.clone(), text),
            ShellError::Fenced(text) => NodeFault::Fenced(self.server.name.clone(), text),
        }
    }

    fn note<T>(&self, change: impl FnOnce(&mut QueuedNodeStatus) -> T) -> T {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the keys of items that were as wanted, still are wanted so, and differ now. A foreign
/// object in the place of one is a fault, and no repair.
fn changed<'i>(known: &'i Items, wanted: &Items, actual: &Items) -> impl Iterator<Item = &'i str> {
    let differs = |(key, item): &(&String, &NodeItem)| {
        let now = actual.get(*key);
        wanted.get(*key) == Some(*item)
            && now != Some(*item)
            && !matches!(now, Some(NodeItem::Foreign(_)))
    };
    known.iter().filter(differs).map(|(key, _)| key.as_str())
}

/// Most requests of one batch.
const BATCH_MAX: usize = 64;

/// Most requests that may wait for a node; a caller with another one waits for a place.
const WAITING_MAX: usize = 256;

/// Most attempts to bring a node to what is wanted; the second starts from what was read back.
const ATTEMPTS: usize = 2;

/// The least time between two comparisons because a router said that a device changed.
const EVENT_PAUSE: Duration = Duration::from_millis(100);

/// The time after which FRR that gave no answer is asked again.
const OSPF_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Most characters of the commands' output in a fault.
const SAID_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::execution::{NodePhase, withdraw};
    use crate::item::ItemEdit;

    /// Returns a queue whose router never answers, and what waits there.
    fn silent(name: &str) -> (NodeQueue, mpsc::Receiver<NodeRequest>) {
        let (sender, requests) = mpsc::channel(WAITING_MAX);
        let name = name.to_owned();
        let router = RouterState { name, reachable: false, repaired: 0, fault: None };
        let status = Arc::new(Mutex::new(QueuedNodeStatus::new(router, None)));
        (NodeQueue { sender, status }, requests)
    }

    fn keys(requests: &mut mpsc::Receiver<NodeRequest>) -> Vec<String> {
        let Ok(NodeRequest::Change { changes, .. }) = requests.try_recv() else {
            return Vec::new();
        };
        changes.into_iter().map(|(key, _)| key).collect()
    }

    /// Goal: an item that somebody else changed is a repair. One that the broker itself has come to
    /// want otherwise, one that was not as wanted before, and a foreign object are none.
    #[test]
    fn only_what_others_changed_is_a_repair() {
        let exit = |number: u16| {
            let outer = std::net::Ipv6Addr::new(0xfd0f, 0, 0, 0, 0, 0, 0, number);
            NodeItem::Exit(crate::item::ExitItem { outer, device: None })
        };
        let items = |all: [(&str, Option<NodeItem>); 5]| -> Items {
            let there = all.into_iter().filter_map(|(key, item)| Some((key.to_owned(), item?)));
            there.collect()
        };
        let foreign = Some(NodeItem::Foreign("fq".to_owned()));
        let [one, two] = [exit(1), exit(2)].map(Some);
        let known = items([
            ("gone", one.clone()),
            ("otherwise", one.clone()),
            ("rewanted", one.clone()),
            ("foreign", one.clone()),
            ("unsound", Some(NodeItem::Broken)),
        ]);
        let wanted = items([
            ("gone", one.clone()),
            ("otherwise", one.clone()),
            ("rewanted", two.clone()),
            ("foreign", one.clone()),
            ("unsound", one.clone()),
        ]);
        let actual = items([
            ("gone", None),
            ("otherwise", two.clone()),
            ("rewanted", Some(NodeItem::Broken)),
            ("foreign", foreign),
            ("unsound", None),
        ]);
        assert_eq!(changed(&known, &wanted, &actual).collect::<Vec<_>>(), ["gone", "otherwise"]);
        assert_eq!(changed(&known, &wanted, &known).count(), 0);
    }

    /// Goal: a router that does not answer is asked for no counters, and one that answers, or was
    /// not asked yet, is, whatever fault it has.
    #[test]
    fn a_silent_router_is_asked_for_no_counters() {
        for (reachable, fault, is_silent) in [
            (false, Some("no route"), true),
            (false, None, false),
            (true, Some("a foreign root"), false),
        ] {
            let fault = fault.map(str::to_owned);
            let router = RouterState { name: "b1".to_owned(), reachable, repaired: 0, fault };
            let silence = QueuedNodeStatus::new(router, None).silence();
            assert_eq!(silence.is_some(), is_silent, "{silence:?}");
        }
    }

    /// Goal: removals of several phases are in the queues of all their routers before anything
    /// later, although the router of the first one is silent.
    #[tokio::test]
    async fn removals_wait_for_no_silent_router() {
        let ((one, mut at_one), (two, mut at_two)) = (silent("one"), silent("two"));
        let nodes = Arc::new(BTreeMap::from([("one".to_owned(), one), ("two".to_owned(), two)]));
        let phase = |name: &str, key: &str| NodePhase {
            changes: BTreeMap::from([(name.to_owned(), vec![(key.to_owned(), ItemEdit::Remove)])]),
            wait: Duration::ZERO,
        };
        let phases = vec![phase("one", "x1"), phase("two", "x2"), phase("one", "x3")];
        let withdrawn = withdraw(&nodes, phases);
        assert_eq!(keys(&mut at_one), ["x1", "x3"]);
        assert_eq!(keys(&mut at_two), ["x2"]);
        // Both requests were dropped, so that their answers came.
        withdrawn.await;
    }
}
