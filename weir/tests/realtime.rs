// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real-time classes on a running node: the kernel has what the policy says, threads that start
//! later have it too, a set that does not fit is refused, and everything is undone by a stop, by
//! the next start after a crash, and by `weir clean`. Root; functions only, no timing.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::process::{Child, Command, Stdio};

use common::{NodeLab, Running, TOPOLOGY, soon};
use weir_client::{Client, Method};
use weir_platform::cap::cgroup::CgroupTree;
use weir_platform::cpu::{self, CpuRequest, SchedulingClass};
use weir_platform::netns;
use weir_platform::process::{Identity, threads_of};
use weir_units::{CpuShare, Nanos};

const POLICY: &str = r#"
version = 1

[[port]]
name = "up0"
rate = "100Mbit"

[[slice]]
name = "gold"

[[router]]
name = "voice"
slice = "gold"
realtime = { type = "periodic", deadline = "5ms", period = "10ms", cpu = "20%", process = "VOICE" }

[[router]]
name = "bulk"
slice = "gold"
realtime = { type = "normal", weight = 300, process = "BULK" }
"#;

/// A process that sleeps.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap())
    }

    fn identity(&self) -> Identity {
        Identity::of(self.0.id()).unwrap()
    }

    fn classes(&self) -> Vec<SchedulingClass> {
        let threads = threads_of(self.identity());
        threads.into_iter().filter_map(|thread| cpu::class_of_thread(thread).ok()).collect()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not in the lab's own mount namespace, as `ip netns exec` makes it: it has no control groups.
fn run(lab: &NodeLab) -> Running {
    let mut command = lab.command(env!("CARGO_BIN_EXE_weir"));
    command.args(["node", "run", "--config", &lab.path("node.toml")]);
    let namespace = netns::Namespace::open(&format!("{}-sw", lab.name())).unwrap();
    let node = lab.start_by(command, |command| namespace.spawn(command).unwrap());
    lab.wait_for_node();
    node
}

fn reload(lab: &NodeLab, policy: &str) -> Result<(), String> {
    lab.write(policy);
    let client = Client::new(lab.path("node-node.sock").as_ref());
    let done = client.ask::<()>(Method::POST, "/v1/reload", None::<&()>);
    done.map(drop).map_err(|error| error.to_string())
}

fn budget(share: u32) -> SchedulingClass {
    let [deadline, period] = [5, 10].map(Nanos::from_millis);
    let runtime = CpuShare::from_percent(share).time_in_floor(period);
    SchedulingClass::Deadline { runtime, deadline, period }
}

#[test]
fn classes_are_what_the_policy_says_and_are_undone() {
    const TEST: &str = "classes_are_what_the_policy_says_and_are_undone";
    let Some(lab) = NodeLab::up("weir-t-rt", TOPOLOGY, "") else { return };
    if let Err(error) = cpu::probe(CpuRequest { cpu: None, class: budget(20) }) {
        return println!("SKIPPED {TEST}: {error}");
    }
    let Ok(tree) = CgroupTree::find() else {
        return println!("SKIPPED {TEST}: no control groups");
    };
    let (voice, bulk) = (Sleeper::start(), Sleeper::start());
    let policy = POLICY
        .replace("VOICE", &voice.0.id().to_string())
        .replace("BULK", &bulk.0.id().to_string());
    lab.write(&policy);
    let group = tree.group("weir-node-bulk");
    let weight = || {
        let of = |file: &str| std::fs::read_to_string(group.join(file)).unwrap_or_default();
        (of("cpu.shares") + &of("cpu.weight")).trim().to_owned()
    };
    let before = [bulk.classes()[0]];
    let node = run(&lab);
    assert!(soon(|| voice.classes() == [budget(20)]), "{:?}", voice.classes());
    assert!(soon(|| ["3072", "300"].contains(&weight().as_str())), "{}", weight());
    assert_eq!(bulk.classes(), before);

    // Live: another budget, another weight, and a set that does not fit.
    reload(&lab, &policy.replace("20%", "30%").replace("300", "200")).unwrap();
    assert!(soon(|| voice.classes() == [budget(30)]), "{:?}", voice.classes());
    assert!(soon(|| ["2048", "200"].contains(&weight().as_str())), "{}", weight());
    let refused = reload(&lab, &policy.replace("20%", "60%")).unwrap_err();
    // 60 % of 10 ms is more than the deadline.
    assert!(refused.contains("60% of 10ms is 6ms, more than the deadline, 5ms"), "{refused}");
    let second = "realtime = { type = \"periodic\", deadline = \"5ms\", cpu = \"90%\", process = ";
    let many = (0..64).fold(policy.clone(), |text, number| {
        let name = format!("[[router]]\nname = \"r{number}\"\nslice = \"gold\"\n");
        text + &format!("{name}{second}\"{}\" }}\n", bulk.0.id())
    });
    let refused = reload(&lab, &many).unwrap_err();
    assert!(refused.contains("add up to") && refused.contains("at most"), "{refused}");
    assert!(refused.contains("router \"r"), "{refused}");
    assert_eq!(voice.classes(), [budget(30)], "a refusal changes nothing");

    // A crash: the next start undoes what is left, and begins anew.
    reload(&lab, &policy).unwrap();
    assert!(soon(|| voice.classes() == [budget(20)]), "{:?}", voice.classes());
    drop(node.kill());
    assert_eq!(voice.classes(), [budget(20)], "a crash leaves it");
    let node = run(&lab);
    assert!(soon(|| voice.classes() == [budget(20)] && !weight().is_empty()));
    lab.stop(node);
    assert_eq!(voice.classes(), before);
    assert!(!group.exists(), "the group is gone");

    // A crash, and nobody starts again.
    let node = run(&lab);
    assert!(soon(|| voice.classes() == [budget(20)] && !weight().is_empty()));
    drop(node.kill());
    let cleaned = lab.weir(&["clean"]);
    assert!(cleaned.status.success(), "{cleaned:?}");
    assert_eq!(voice.classes(), before);
    assert!(!group.exists(), "the group is gone");
}

/// A process that ends, and comes back as another.
#[test]
fn a_process_that_comes_back_has_the_class() {
    const TEST: &str = "a_process_that_comes_back_has_the_class";
    let Some(lab) = NodeLab::up("weir-t-rtt", TOPOLOGY, "") else { return };
    let class = budget(20);
    if let Err(error) = cpu::probe(CpuRequest { cpu: None, class }) {
        return println!("SKIPPED {TEST}: {error}");
    }
    let first = Sleeper::start();
    let before = [first.classes()[0]];
    let file = lab.path("voice.pid");
    let write = |process: &Sleeper| std::fs::write(&file, process.0.id().to_string()).unwrap();
    write(&first);
    let (policy, _) = POLICY.split_once("[[router]]\nname = \"bulk\"").unwrap();
    lab.write(&policy.replace("VOICE", &file));
    let node = run(&lab);
    assert!(soon(|| first.classes() == [class]), "{:?}", first.classes());
    drop(first);
    let second = Sleeper::start();
    write(&second);
    assert!(soon(|| second.classes() == [class]), "{:?}", second.classes());
    lab.stop(node);
    assert_eq!(second.classes(), before);
}
