// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A real node under full load for ten minutes, while its interface is in use: readers, listeners
//! to events, and ten changes a second.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use weir_client::{Client, Method};
use weir_experiment::clock;
use weir_experiment::node_process::NodeProcess;
use weir_experiment::prelude::*;
use weir_node::policy_store;
use weir_platform::StateDir;

use super::growth::{NodeFiles, Watch, add_metrics, counters_of};
use super::load::flooded;

/// Shows the part of the row that is real.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let times = match rec.quick {
        true => SoakSeconds { all: 60, first: 30 },
        false => SoakSeconds { all: 600, first: 60 },
    };
    let star = StarTopology::new("node-soak", VIFS, BitRate::from_mbps(LINK_MBPS));
    let mut policy = star.policy();
    policy.api.changes = RECORD;
    let names: Vec<String> = policy.vifs.iter().map(|vif| vif.name.clone()).collect();
    let run = flooded(&star, policy.clone(), FLOOD_MBPS, times.all + EDGES);
    let (outcome, (watch, asked)) = run.run_beside(|rig| {
        let folders = folders(&policy, rig.folder().parent().map(Into::into));
        let disk = || NodeFiles::of(&folders, &policy.node.name);
        beside(rig.running()?, &names, &times, &disk)
    })?;
    judge_use(rec, &outcome, &asked, times.all)?;
    watch.judge(rec, "soak", [1.0, 1.0])
}

/// Lengths in seconds.
struct SoakSeconds {
    all: usize,
    /// The length of the first part. The rest is compared with its memory and files.
    first: usize,
}

/// The result of the requests beside the traffic.
#[derive(Default)]
struct SoakRequests {
    reads: AtomicU64,
    events: AtomicU64,
    changes: AtomicU64,
    failed: AtomicU64,
    /// The most bytes of files since the last look: a record is longest just before it is written
    /// anew.
    disk_most: AtomicU64,
}

/// The time for which the node is used.
struct SoakPeriod {
    end: Instant,
    /// True if the watch ended early, since a signal came or the node is gone.
    ended: AtomicBool,
}

impl SoakPeriod {
    fn goes_on(&self) -> bool {
        !self.ended.load(Ordering::Relaxed) && Instant::now() < self.end
    }
}

/// Returns the folders of the node's own files.
fn folders(policy: &Policy, state: Option<PathBuf>) -> Vec<PathBuf> {
    let policy = policy_store::path(&StateDir::from_env(), &policy.node.name);
    let mut folders: Vec<PathBuf> =
        policy.parent().map(Into::into).into_iter().chain(state).collect();
    folders.sort();
    folders.dedup();
    folders
}

fn beside(
    node: &NodeProcess,
    names: &[String],
    times: &SoakSeconds,
    disk: &(dyn Fn() -> NodeFiles + Sync),
) -> Result<(Watch, SoakRequests)> {
    let asked = SoakRequests::default();
    let client = node.client();
    let end = Instant::now() + Duration::from_secs(times.all as u64);
    let time = SoakPeriod { end, ended: AtomicBool::new(false) };
    let watched = std::thread::scope(|scope| {
        let (client, time, asked) = (&client, &time, &asked);
        for _ in 0..LISTENERS {
            scope.spawn(move || listen(client, time, asked));
        }
        for number in 0..READERS {
            scope.spawn(move || read(client, number, time, asked));
        }
        scope.spawn(move || change(client, names, time, asked, disk));
        let watched = watch(node, times, asked, disk);
        time.ended.store(true, Ordering::Relaxed);
        watched
    });
    watched.map(|watch| (watch, asked))
}

/// Takes a sample each second.
fn watch(
    node: &NodeProcess,
    times: &SoakSeconds,
    asked: &SoakRequests,
    disk: &(dyn Fn() -> NodeFiles + Sync),
) -> Result<Watch> {
    let (mut watch, start, client) = (Watch::default(), Instant::now(), node.client());
    for second in 1..=times.all {
        clock::sleep(Duration::from_secs(second as u64).saturating_sub(start.elapsed()))?;
        let mut counters = counters_of(&node.status()?);
        add_metrics(&client.text("/metrics")?, &mut counters);
        let now = disk();
        let others = now.others.max(asked.disk_most.swap(0, Ordering::Relaxed));
        let disk = NodeFiles { others, ..now };
        watch.sample(second <= times.first, node.pid(), disk, counters)?;
    }
    Ok(watch)
}

/// Listens to events. A stream that ends early is one failure and ends the loop, since the node
/// must not go meanwhile.
fn listen(client: &Client, time: &SoakPeriod, asked: &SoakRequests) {
    let failed = || asked.failed.fetch_add(1, Ordering::Relaxed);
    let Ok(mut events) = client.events("/v1/events?interval_ms=100") else {
        failed();
        return;
    };
    while time.goes_on() {
        let Ok(Some(_)) = events.event(Duration::from_secs(5)) else {
            failed();
            return;
        };
        asked.events.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads on a connection of its own each time, as programs that ask now and then do.
fn read(client: &Client, number: u32, time: &SoakPeriod, asked: &SoakRequests) {
    let paths = ["/v1/status", "/v1/policy", "/metrics", "/v1/changes", "/v1/overlay"];
    for path in paths.iter().cycle().skip(number as usize) {
        if !time.goes_on() {
            return;
        }
        let counter = if client.text(path).is_ok() { &asked.reads } else { &asked.failed };
        counter.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(READ_PAUSE);
    }
}

/// Changes limits of all vifs but those that flood, all texts of one length; every tenth change is
/// taken back.
fn change(
    client: &Client,
    names: &[String],
    time: &SoakPeriod,
    asked: &SoakRequests,
    disk: &(dyn Fn() -> NodeFiles + Sync),
) {
    for number in 0_u64.. {
        if !time.goes_on() {
            return;
        }
        let done = if number % 10 == 9 {
            client.ask::<serde_json::Value>(Method::POST, "/v1/undo", Some(&serde_json::json!({})))
        } else {
            let others = &names[2..];
            let name = &others[usize::try_from(number).unwrap_or(0) % others.len()];
            let body =
                serde_json::json!({ "send": { "rate_bps": 10_000_001 + number % 80_000_000 }});
            client.ask(Method::PATCH, &format!("/v1/vifs/{name}"), Some(&body))
        };
        let counter = if done.is_ok() { &asked.changes } else { &asked.failed };
        counter.fetch_add(1, Ordering::Relaxed);
        asked.disk_most.fetch_max(disk().others, Ordering::Relaxed);
        // The first changes fill the record without a pause, since a record that is not full grows.
        if number > FILL {
            std::thread::sleep(CHANGE_PAUSE);
        }
    }
}

/// Judges that the run had full load and an interface in use.
fn judge_use(
    rec: &mut Recording<'_>,
    outcome: &TrafficRecord,
    asked: &SoakRequests,
    seconds: usize,
) -> Result {
    let at_least = |each_second: u64| Bound::at_least(float(each_second * seconds as u64));
    for (part, what, count, bound) in [
        ("reads", "requests that read", &asked.reads, at_least(10)),
        ("events", "events heard", &asked.events, at_least(10)),
        ("changes", "changes made", &asked.changes, at_least(2)),
        ("failed", "requests that failed", &asked.failed, Bound::equal(0.0)),
    ] {
        rec.count(format!("soak/{part}"), what, count.load(Ordering::Relaxed), bound)?;
    }
    let wire = outcome.got_together(0, 0..2)[..seconds].to_vec();
    rec.keep("soak/wire", Series::sampled("bit/s", 1.0, wire))?;
    let full = Bound::at_least(0.9 * float(LINK_MBPS * 1_000_000));
    let claim = Claim::new("soak/full", "on the link, mean", Rule::Mean, full);
    rec.judge(claim.of(&["soak/wire"]).skip(1))
}

const VIFS: usize = 6;
const LINK_MBPS: u64 = 50;
/// The load of each of two flooders. Together they send three times the link's rate.
const FLOOD_MBPS: u64 = 75;
const LISTENERS: u32 = 2;
const READERS: u32 = 4;
const READ_PAUSE: Duration = Duration::from_millis(100);
const CHANGE_PAUSE: Duration = Duration::from_millis(70);
/// Changes on record. It is soon full, and then written anew again and again.
const RECORD: u32 = 200;
/// The changes that fill the record, up to where it is written anew, and until their numbers have
/// four digits, as at the end.
const FILL: u64 = 1000;
/// Seconds that traffic goes on after the last sample.
const EDGES: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    fn hours() -> SoakPeriod {
        SoakPeriod {
            end: Instant::now() + Duration::from_secs(7200),
            ended: AtomicBool::new(false),
        }
    }

    /// A node that says one thing and goes causes one failure, not one for each turn of a loop.
    #[test]
    fn a_listener_ends_with_its_node() {
        let path = std::env::temp_dir().join(format!("weir-t-soak-{}", std::process::id()));
        let door = UnixListener::bind(&path).unwrap();
        let node = std::thread::spawn(move || {
            let (mut stream, _) = door.accept().unwrap();
            let _head = stream.read(&mut [0; 4096]).unwrap();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
            let event = "event: status\ndata: {}\n\n";
            write!(stream, "{head}connection: close\r\n\r\n{event}").unwrap();
        });
        let (time, asked, client) = (hours(), SoakRequests::default(), Client::new(&path));
        let (tell, ended) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let (time, asked) = (&time, &asked);
            scope.spawn(move || {
                listen(&client, time, asked);
                let _told = tell.send(());
            });
            let in_time = ended.recv_timeout(Duration::from_secs(20));
            time.ended.store(true, Ordering::Relaxed);
            assert_eq!(in_time, Ok(()), "it listens on");
        });
        node.join().unwrap();
        std::fs::remove_file(&path).unwrap();
        let counts = [&asked.events, &asked.failed].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts, [1, 1]);
    }

    /// An interrupted run: readers and writers have hours left, and end at once.
    #[test]
    fn everybody_ends_with_the_watch() {
        let (time, asked) = (hours(), SoakRequests::default());
        let client = Client::new(std::path::Path::new("/nowhere/weir.sock"));
        let names = ["a", "b", "c"].map(str::to_owned);
        let (time, asked, client) = (&time, &asked, &client);
        std::thread::scope(|scope| {
            scope.spawn(|| read(client, 0, time, asked));
            scope.spawn(|| {
                change(client, &names, time, asked, &|| NodeFiles { report: 0, others: 0 })
            });
            std::thread::sleep(READ_PAUSE);
            time.ended.store(true, Ordering::Relaxed);
        });
        assert!(asked.failed.load(Ordering::Relaxed) > 0);
    }
}
