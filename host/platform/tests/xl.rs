// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The readers of Xen's tools on what they really printed: Xen 4.17 under credit, credit2 and RTDS
//! (`tests/data/xl/README.txt`), and the actuator on a platform that answers with these texts.
// A test may panic.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::TestState;
use weir_control::realtime::TimingDemand;
use weir_platform::cap::{
    Actuator, CapError, RtdsBudget, RtdsClass, XenRoom, XlCap, check_period, xl_text,
};
use weir_platform::journal::Journal;
use weir_platform::run::{Command, CommandFailure, Platform, RunError};
use weir_units::{CpuShare, Nanos};

const RUNS: [&str; 3] = ["credit", "credit2-2pcpu", "rtds"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xl")
}

/// The output and exit status of a recorded command.
fn recorded(run: &str, name: &str) -> (String, i32) {
    let text = fs::read_to_string(folder().join(run).join(format!("{name}.txt"))).unwrap();
    let (_, rest) = text.split_once('\n').unwrap();
    let (output, status) = rest.rsplit_once("[rc=").unwrap();
    (output.to_owned(), status.trim_end().trim_end_matches(']').parse().unwrap())
}

fn output(run: &str, name: &str) -> String {
    recorded(run, name).0
}

/// Every recorded file, with its name.
fn all() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for run in RUNS {
        for entry in fs::read_dir(folder().join(run)).unwrap() {
            let path = entry.unwrap().path();
            let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
            found.push((format!("{run}/{}", path.file_name().unwrap().to_string_lossy()), text));
        }
    }
    found
}

/// Goal: a reader is never taken in by another command's output. Each file is given to each
/// reader, whole and cut at each of many places.
#[test]
fn each_reader_takes_its_own_files_and_no_other() {
    let mut taken = [0_usize; 6];
    let files = all();
    assert_eq!(files.len(), 206, "every file of the three runs");
    for (name, text) in &files {
        let body: String = text
            .lines()
            .filter(|line| !line.starts_with("$ ") && !line.starts_with("[rc="))
            .map(|line| format!("{line}\n"))
            .collect();
        let rows = [
            xl_text::domains(&body).map_or(0, |rows| rows.len()),
            xl_text::caps(&body).map_or(0, |rows| rows.len()),
            xl_text::budgets(&body).map_or(0, |rows| rows.len()),
            xl_text::vcpus(&body).map_or(0, |rows| rows.len()),
            xl_text::network(&body).map_or(0, |rows| rows.len()),
            xl_text::pools(&body).map_or(0, |rows| rows.len()),
        ];
        let command = text.lines().next().unwrap_or_default();
        let own = [
            command.starts_with("$ xl list") && !command.contains("-l"),
            command.starts_with("$ xl sched-credit"),
            command.starts_with("$ xl sched-rtds"),
            command.starts_with("$ xl vcpu-list"),
            command.starts_with("$ xl network-list"),
            command.starts_with("$ xl cpupool-list"),
        ];
        for ((rows, own), taken) in rows.iter().zip(own).zip(&mut taken) {
            // `/proc/uptime` is two words, as is a pool without a name that could be told apart.
            let uptime = command == "$ cat /proc/uptime";
            assert!(*rows == 0 || own || uptime, "{name}: {rows} rows of another command");
            *taken += usize::from(*rows > 0);
        }
        let is_info = command == "$ xl info";
        assert_eq!(xl_text::scheduler(text).is_some(), is_info, "{name}");
        assert_eq!(!xl_text::vifs(text).is_empty(), command == "$ xenstore-ls -f", "{name}");
        for cut in (0..text.len().min(2000)).step_by(37) {
            let Some(part) = text.get(..cut) else { continue };
            let _ = (xl_text::domains(part), xl_text::caps(part), xl_text::budgets(part));
            let _ = (xl_text::vcpus(part), xl_text::network(part), xl_text::pools(part));
            let _ = (xl_text::vifs(part), xl_text::time_slice(part), xl_text::info(part, "x"));
        }
    }
    assert!(taken.iter().all(|files| *files >= 3), "{taken:?}");
}

#[test]
fn the_scheduler_is_what_the_hypervisor_says() {
    let names = ["credit", "credit2", "rtds"];
    for (run, name) in RUNS.iter().zip(names) {
        for file in ["00-xl-info", "22-xl-info"] {
            assert_eq!(xl_text::scheduler(&output(run, file)).unwrap().to_string(), name);
        }
    }
    let processors = |run| xl_text::info(&output(run, "00-xl-info"), "nr_cpus").unwrap().to_owned();
    assert_eq!((processors("credit"), processors("credit2-2pcpu")), ("1".into(), "2".into()));
}

#[test]
fn guests_caps_and_budgets_are_read() {
    let list = xl_text::domains(&output("credit", "05-xl-list")).unwrap();
    let named: Vec<_> = list.iter().map(|guest| (guest.name.as_str(), guest.id)).collect();
    assert_eq!(named, [("Domain-0", 0), ("fc1", 1), ("fc2", 2)]);
    assert_eq!((list[1].memory_mib, list[1].vcpus), (128, 1));
    assert_eq!(list[1].time, Nanos::from_millis(11_000));
    assert_eq!(xl_text::domains(&output("credit", "05-xl-list-v")).unwrap().len(), 3);
    let paused = xl_text::domains(&output("rtds", "17-list-paused")).unwrap();
    assert_eq!(paused[2].state, "--p---");

    let caps = |run, file| xl_text::caps(&output(run, file)).unwrap();
    let of = |run, file| caps(run, file).iter().map(|row| row.cap_percent).collect::<Vec<_>>();
    assert_eq!(of("credit", "09-sched-credit"), [0, 0, 0]);
    assert_eq!(of("credit", "10-sched-credit-after"), [0, 50, 0]);
    assert_eq!(of("credit2-2pcpu", "11-sched-credit2-after"), [0, 30, 0]);
    assert_eq!(of("credit2-2pcpu", "11-sched-credit2-d"), [30]);
    assert_eq!(caps("credit", "10-sched-credit-after")[1].weight, 512);

    let budgets = xl_text::budgets(&output("rtds", "12-sched-rtds-v")).unwrap();
    let fc1 = &budgets[1];
    assert_eq!((fc1.vcpu, fc1.extra, fc1.budget), (Some(0), false, Nanos::from_micros(2500)));
    let of_guests = xl_text::budgets(&output("rtds", "12-sched-rtds")).unwrap();
    assert!(of_guests.iter().all(|row| row.vcpu.is_none() && row.extra));
}

/// A wrong scheduler's listing is empty with status 0, and no cap of it can be read or set.
#[test]
fn the_tools_of_another_scheduler_give_nothing() {
    for (run, file) in [("credit2-2pcpu", "09-sched-credit"), ("rtds", "11-sched-credit2")] {
        assert_eq!(recorded(run, file), (String::new(), 0));
        assert_eq!(xl_text::caps(&output(run, file)), Ok(vec![]));
    }
    for (run, file) in [("credit2-2pcpu", "09-sched-credit-d"), ("credit", "11-sched-credit2-set")]
    {
        let (text, status) = recorded(run, file);
        assert_eq!(status, 1);
        let error = xl_text::caps(&text).unwrap_err().to_string();
        assert!(error.starts_with("`xl sched-credit` printed \"libxl"), "{error}");
    }
}

#[test]
fn time_slices_processors_and_pools_are_read() {
    let slice = |run, file| xl_text::time_slice(&output(run, file));
    assert_eq!(slice("credit", "09-sched-credit-s"), Some(Nanos::from_millis(30)));
    assert_eq!(slice("credit", "10-sched-credit-s-after"), Some(Nanos::from_millis(5)));
    assert_eq!(slice("credit2-2pcpu", "11-sched-credit2-s"), None);
    assert_eq!(slice("rtds", "09-sched-credit-s"), None, "unavailable");
    let vcpus = xl_text::vcpus(&output("credit2-2pcpu", "16-vcpu-list")).unwrap();
    assert_eq!(
        (vcpus[1].name.as_str(), vcpus[1].cpu, vcpus[1].hard.as_str()),
        ("fc1", Some(0), "0")
    );
    let pools = |run| xl_text::pools(&output(run, "13-cpupool-list")).unwrap();
    assert_eq!(pools("credit2-2pcpu"), [("Pool-0".to_owned(), "0,1".to_owned())]);
}

/// fc1 has no name for its interface, fc2 has one.
#[test]
fn interfaces_have_the_names_of_their_devices() {
    for run in RUNS {
        let vifs = xl_text::vifs(&output(run, "07-xenstore-ls"));
        let named: Vec<_> = vifs.iter().map(|vif| (vif.domain, vif.device.as_str())).collect();
        assert_eq!(named, [(1, "vif1.0"), (2, "fc2-eth0")]);
        let listed = xl_text::network(&output(run, "06-network-list-fc1")).unwrap();
        assert_eq!((listed[0].domain, listed[0].device.as_str()), (1, "vif1.0"));
    }
}

/// Answers with what was recorded, and keeps the cap that was set.
struct Xen {
    run: &'static str,
    cap: Mutex<u32>,
    asked: Mutex<Vec<Command>>,
    gone: Mutex<bool>,
}

impl Xen {
    fn new(run: &'static str) -> Arc<Self> {
        Arc::new(Self { run, cap: Mutex::new(25), asked: Mutex::default(), gone: Mutex::default() })
    }
}

impl Platform for Xen {
    fn run(&self, command: &Command) -> Result<String, RunError> {
        let line = command.to_string();
        self.asked.lock().unwrap().push(command.clone());
        let fail = |file: &str| {
            let (stderr, status) = recorded(self.run, file);
            let status = format!("exit status: {status}");
            let failure = CommandFailure::Status { status, is_killed: false, line: None, stderr };
            Err(RunError { command: line.clone(), failure })
        };
        if *self.gone.lock().unwrap() {
            return fail("18-err-nodom");
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match &words[1..] {
            ["info"] => Ok(output(self.run, "00-xl-info")),
            ["list", _] => Ok(output(self.run, "05-xl-list")),
            ["sched-credit", "-s"] => Ok(output(self.run, "09-sched-credit-s")),
            ["sched-rtds", "-d", "fc1", "-v", "all"] => Ok(output(self.run, "12-sched-rtds-dv")),
            ["sched-rtds", "-d", "fc2", "-v", "all"] => {
                let one = output(self.run, "12-sched-rtds-dv").replace("fc1", "fc2");
                Ok(format!("{one}{}", one.lines().nth(1).unwrap()))
            }
            ["sched-rtds", "-v", "all"] => Ok(output(self.run, "12-sched-rtds-v")),
            ["sched-rtds", ..] => Ok(output(self.run, "12-sched-rtds-set")),
            [_, "-d", "fc1"] => {
                let cap = *self.cap.lock().unwrap();
                Ok(format!("Name ID Weight Cap\nfc1 1 256 {cap}\n"))
            }
            [_, "-d", "fc1", "-c", cap] => {
                *self.cap.lock().unwrap() = cap.parse().unwrap();
                Ok(String::new())
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_guest_is_capped_in_whole_percents_and_has_its_own_cap_back() {
    for (run, name, period, word) in [
        ("credit", "xl credit", 30, "sched-credit"),
        ("credit2-2pcpu", "xl credit2", 10, "sched-credit2"),
    ] {
        let state = TestState::new(&format!("xl-{run}"));
        let mut journal = Journal::open(&state.state, "xl", Duration::ZERO).unwrap();
        let xen = Xen::new(run);
        let mut cap = XlCap::new(xen.clone(), &mut journal, "fc1").unwrap();
        assert_eq!((cap.name(), cap.period()), (name, Nanos::from_millis(period)));
        check_period(&cap, Nanos::from_millis(3 * period)).unwrap();
        let error = check_period(&cap, Nanos::from_millis(3 * period - 1)).unwrap_err();
        assert!(matches!(error, CapError::TooSoon { .. }), "{error}");
        assert_eq!(cap.in_force().unwrap(), Some(CpuShare::from_percent(25)));
        let set = cap.set(CpuShare::from_ppm(416_000)).unwrap();
        assert_eq!(set, CpuShare::from_percent(42));
        let last = xen.asked.lock().unwrap().last().unwrap().clone();
        assert_eq!(last.to_string(), format!("xl {word} -d fc1 -c 42"));
        assert_eq!(cap.set(CpuShare::MAX).unwrap(), CpuShare::ONE, "one virtual processor");
        cap.release().unwrap();
        let last = xen.asked.lock().unwrap().last().unwrap().clone();
        // Longer than the others: with busy guests one such call took more than two seconds.
        let patient = Command::line(&format!("xl {word} -d fc1 -c 0"));
        assert_eq!(last, patient.limit(Duration::from_secs(10)));
        assert_eq!(cap.in_force().unwrap(), None);
        journal.undo_all(&*xen).unwrap();
        assert_eq!(*xen.cap.lock().unwrap(), 25);
    }
}

#[test]
fn what_cannot_be_capped_is_named() {
    let state = TestState::new("xl-no");
    let mut journal = Journal::open(&state.state, "xl", Duration::ZERO).unwrap();
    let mut new = |run, name| XlCap::new(Xen::new(run), &mut journal, name).map(drop);
    for (run, guest, expected) in [
        ("rtds", "fc1", "Xen's scheduler is rtds, which has no caps; boot with sched=credit2"),
        ("credit", "fc9", "guest fc9: there is none"),
        ("credit", "-c", "guest \"-c\": a name is 1 to 255 letters"),
    ] {
        let error = new(run, guest).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let xen = Xen::new("credit");
    let mut cap = XlCap::new(xen.clone(), &mut journal, "fc1").unwrap();
    *xen.gone.lock().unwrap() = true;
    assert!(matches!(cap.set(CpuShare::ONE), Err(CapError::Gone { .. })));
    assert!(matches!(cap.in_force(), Err(CapError::Gone { .. })));
    cap.release().unwrap();
    assert!(journal.undo_all(&*xen).unwrap().failed.is_empty(), "a guest that is gone has no cap");
}

/// A guest under RTDS gets what `xl` was seen to take, once, and its own budget back.
#[test]
fn a_guest_under_rtds_gets_a_budget_and_has_its_own_back() {
    let state = TestState::new("xl-rtds");
    let mut journal = Journal::open(&state.state, "xl", Duration::ZERO).unwrap();
    let xen = Xen::new("rtds");
    let mut class = RtdsClass::new(xen.clone(), &mut journal, "fc1").unwrap();
    assert_eq!(class.in_force().unwrap(), CpuShare::from_percent(25));
    let last = || xen.asked.lock().unwrap().last().unwrap().to_string();
    let budget = RtdsBudget { period_us: 5_000, budget_us: 1_000, extra: true };
    class.set(budget).unwrap();
    assert_eq!(last(), "xl sched-rtds -d fc1 -v all -p 5000 -b 1000 -e 1");
    let asked = xen.asked.lock().unwrap().len();
    class.set(budget).unwrap();
    assert_eq!(xen.asked.lock().unwrap().len(), asked, "it has that already");
    journal.undo_all(&*xen).unwrap();
    // As recorded: what the guest had before.
    assert_eq!(last(), "xl sched-rtds -d fc1 -v all -p 10000 -b 2500 -e 0");
}

/// Domain 0 and a guest without a class have budgets too, by default 4 ms of 10 ms.
#[test]
fn the_room_for_classes_has_the_budgets_of_all_others_in_it() {
    let others = |run, named: &[&str]| {
        let room = XenRoom::read(&*Xen::new(run), named).unwrap().unwrap();
        let share = |one: &TimingDemand| (one.share, one.period, one.deadline == one.period);
        (room.processors, room.others.iter().map(share).collect::<Vec<_>>())
    };
    let of = |percent, period| (CpuShare::from_percent(percent), Nanos::from_millis(period), true);
    assert_eq!(others("rtds", &["fc1"]), (1, vec![of(40, 10), of(20, 20)]));
    assert_eq!(others("rtds", &["fc1", "fc2"]), (1, vec![of(40, 10)]));
    let gone = Xen::new("rtds");
    *gone.gone.lock().unwrap() = true;
    assert_eq!(XenRoom::read(&*gone, &[]).unwrap(), None, "no Xen answers");
    let credit = Xen::new("credit");
    assert_eq!(XenRoom::read(&*credit, &[]).unwrap(), None, "another scheduler");
    assert_eq!(credit.asked.lock().unwrap().len(), 1, "its budgets are not asked for");
}

#[test]
fn a_guest_that_cannot_have_a_class_is_named() {
    let state = TestState::new("xl-rtds-no");
    let mut journal = Journal::open(&state.state, "xl", Duration::ZERO).unwrap();
    let mut new = |run, name| RtdsClass::new(Xen::new(run), &mut journal, name).map(drop);
    for (run, guest, expected) in [
        ("credit", "fc1", "guest fc1: Xen's scheduler is credit, real-time classes need rtds"),
        ("rtds", "-d", "guest \"-d\": a name is 1 to 255 letters"),
        ("rtds", "fc2", "guest fc2: 2 virtual processors, a class is for a guest with one"),
    ] {
        let error = new(run, guest).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
