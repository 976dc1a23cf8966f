// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The undo journal on a real file system, without root.
// A test may panic.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::time::Duration;

use common::TestState;
use weir_platform::journal::{self, Journal, JournalEntry, Scope};
use weir_platform::run::{Command, CommandFailure, Recorder, RunError};
use weir_platform::{ChangePurpose, HostError, Undo};

const NOW: Duration = Duration::ZERO;

fn change(number: u32) -> (String, Undo) {
    let undo = Undo::run(Command::line(&format!("ip link del weir{number}")));
    (format!("ip link add weir{number}"), undo)
}

fn refused(stderr: &str) -> Result<String, RunError> {
    let (status, stderr) = ("exit status: 1".to_owned(), stderr.to_owned());
    let failure = CommandFailure::Status { status, is_killed: false, line: None, stderr };
    Err(RunError { command: "ip".to_owned(), failure })
}

#[test]
fn changes_are_undone_last_first_and_nothing_is_left() {
    let test = TestState::new("order");
    let mut journal = Journal::open(&test.state, "lab-a", NOW).unwrap();
    for (what, undo) in [change(1), change(2), change(3)] {
        journal.record(&what, undo).unwrap();
    }
    let host = Recorder::default();
    let report = journal.undo_all(&host).unwrap();
    let lines: Vec<String> = host.commands().iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["ip link del weir3", "ip link del weir2", "ip link del weir1"]);
    assert_eq!(report.undone.len(), 3);
    assert!(!test.path.exists(), "the state folder goes with its last journal");
}

#[test]
fn what_is_forgotten_is_never_undone() {
    let test = TestState::new("forgotten");
    let mut journal = Journal::open(&test.state, "lab-a", NOW).unwrap();
    let changes = [("up0", change(1)), ("up1", change(2)), ("up0", change(3))];
    let entries = changes.iter().map(|(device, (what, undo))| JournalEntry {
        purpose: ChangePurpose::device(device),
        what,
        undo,
    });
    journal.record_all(entries).unwrap();
    journal.forget_those(|_, purpose| purpose.concerns_device("up0")).unwrap();
    drop(journal);
    let host = Recorder::default();
    Journal::open(&test.state, "lab-a", NOW).unwrap().undo_all(&host).unwrap();
    let lines: Vec<String> = host.commands().iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["ip link del weir2"]);
}

#[test]
fn what_is_gone_counts_as_undone_and_what_stays_is_tried_again() {
    let test = TestState::new("again");
    let mut journal = Journal::open(&test.state, "lab-a", NOW).unwrap();
    for (what, undo) in [change(1), change(2), change(3)] {
        journal.record(&what, undo).unwrap();
    }
    let gone = refused("Cannot find device \"weir3\"");
    let host = Recorder::answering([gone, refused("RTNETLINK answers: Device or resource busy")]);
    let report = journal.undo_all(&host).unwrap();
    assert_eq!(report.undone, ["ip link add weir3", "ip link add weir1"]);
    assert_eq!(report.failed.len(), 1);
    assert!(report.failed[0].contains("Device or resource busy"), "{:?}", report.failed);

    // The one that stayed is still written down, and goes the second time.
    let journal = Journal::open(&test.state, "lab-a", NOW).unwrap();
    assert!(journal.holds(&change(2).1) && !journal.holds(&change(1).1));
    let report = journal.undo_all(&Recorder::default()).unwrap();
    assert_eq!(report.undone, ["ip link add weir2"]);
    assert!(!test.path.exists());
}

/// Journals of release 0.1 have no purposes, and one of a later release may have others: both are
/// read, and undone.
#[test]
fn entries_without_a_known_purpose_are_read_and_undone() {
    let test = TestState::new("purposes");
    drop(Journal::open(&test.state, "node-a", NOW).unwrap());
    let path = test.state.journals().join("node-a.jsonl");
    let undo = serde_json::to_string(&change(1).1).unwrap();
    let mut text = fs::read_to_string(&path).unwrap();
    for (sequence, fields) in [
        r#""what":"up0: no IPv6 of the host's own""#,
        r#""what":"up0: the host's addresses move to w0h""#,
        r#""what":"file /run/x""#,
        r#""what":"new","purpose":{"kind":"of a later release","name":"up0"}"#,
    ]
    .iter()
    .enumerate()
    {
        text += &format!(r#"{{"change":{{"sequence":{sequence},{fields},"undo":{undo}}}}}"#);
        text.push('\n');
    }
    fs::write(&path, text).unwrap();
    let mut journal = Journal::open(&test.state, "node-a", NOW).unwrap();
    let (nic, host_device) = ("up0".to_owned(), "w0h".to_owned());
    let purposes: Vec<_> = journal.purposes().cloned().collect();
    assert_eq!(
        purposes,
        [
            ChangePurpose::device("up0"),
            ChangePurpose::HostVif { nic, host_device },
            ChangePurpose::Other,
            ChangePurpose::Other
        ]
    );
    let report = journal
        .undo_those(&Recorder::default(), |_, purpose| purpose.concerns_device("up0"))
        .unwrap();
    assert_eq!(report.undone.len(), 2, "{report:?}");
    let report = journal.undo_all(&Recorder::default()).unwrap();
    assert_eq!(report.undone, ["new", "file /run/x"]);
}

#[test]
fn a_held_journal_is_refused_by_name_and_a_free_one_is_adopted() {
    let test = TestState::new("lock");
    let mut journal = Journal::open(&test.state, "node-a", NOW).unwrap();
    journal.record("a change", change(1).1).unwrap();
    let error = Journal::open(&test.state, "node-a", Duration::from_millis(30)).unwrap_err();
    let holder = format!("process {}", std::process::id());
    assert!(error.to_string().contains(&holder), "{error}");
    let report = journal::clean(&test.state, Scope::All).unwrap();
    assert_eq!((report.left.len(), report.undone.len()), (1, 0), "a living owner is left alone");
    drop(journal);
    let journal = Journal::open(&test.state, "node-a", NOW).unwrap();
    assert!(journal.holds(&change(1).1));
}

#[test]
fn cleaning_takes_the_stale_and_leaves_the_kept() {
    let test = TestState::new("clean");
    let file = test.path.join("made-by-a");
    let mut stale = Journal::open(&test.state, "node-a", NOW).unwrap();
    stale.record("make a file", Undo::Remove(file.clone())).unwrap();
    fs::write(&file, "x").unwrap();
    drop(stale);
    let mut kept = Journal::open(&test.state, "lab-b", NOW).unwrap();
    kept.record("nothing", Undo::Remove(test.path.join("never-made"))).unwrap();
    kept.keep().unwrap();
    drop(kept);

    let report = journal::clean(&test.state, Scope::Stale).unwrap();
    assert_eq!(report.undone, ["make a file"]);
    assert!(!file.exists());
    assert_eq!(journal::list(&test.state).unwrap(), ["lab-b"]);
    let report = journal::clean(&test.state, Scope::All).unwrap();
    assert_eq!(report.undone, ["nothing"]);
    assert!(!test.path.exists());
}

#[test]
fn a_torn_last_line_is_a_change_that_was_never_made() {
    let test = TestState::new("torn");
    let mut journal = Journal::open(&test.state, "lab-a", NOW).unwrap();
    journal.record("one", change(1).1).unwrap();
    journal.record("two", change(2).1).unwrap();
    drop(journal);
    let path = test.state.journals().join("lab-a.jsonl");
    let text = fs::read(&path).unwrap();
    fs::write(&path, &text[..text.len() - 20]).unwrap();
    let mut journal = Journal::open(&test.state, "lab-a", NOW).unwrap();
    assert!(journal.holds(&change(1).1) && !journal.holds(&change(2).1));
    journal.record("three", change(3).1).unwrap();
    drop(journal);
    let journal = Journal::open(&test.state, "lab-a", NOW).unwrap();
    assert!(journal.holds(&change(3).1), "the line after a torn one is whole");
}

#[test]
fn changes_of_an_earlier_boot_are_gone_except_files() {
    let test = TestState::new("boot");
    let mut journal = Journal::open(&test.state, "node-a", NOW).unwrap();
    let file = test.path.join("on-disk");
    journal.record("make a file", Undo::Remove(file.clone())).unwrap();
    journal.record("a link", change(1).1).unwrap();
    fs::write(&file, "x").unwrap();
    drop(journal);
    let path = test.state.journals().join("node-a.jsonl");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let text = fs::read_to_string(&path).unwrap().replace(boot.trim(), "another-boot");
    fs::write(&path, text).unwrap();
    let host = Recorder::default();
    let journal = Journal::open(&test.state, "node-a", NOW).unwrap();
    journal.undo_all(&host).unwrap();
    assert!(host.commands().is_empty(), "a link of that name is not ours");
    assert!(!file.exists());
}

#[test]
fn a_fresh_start_undoes_what_a_dead_owner_left() {
    let test = TestState::new("fresh");
    let file = test.path.join("left");
    let mut journal = Journal::open(&test.state, "node-a", NOW).unwrap();
    journal.record("left behind", Undo::Remove(file.clone())).unwrap();
    fs::write(&file, "x").unwrap();
    drop(journal);
    let (journal, report) = journal::open_clean(&test.state, "node-a", NOW).unwrap();
    assert_eq!(report.undone, ["left behind"]);
    assert!(journal.is_empty() && !file.exists());
    let second = journal::open_clean(&test.state, "node-a", NOW);
    assert!(matches!(second, Err(HostError::Refused(_))), "one owner at a time");
}
