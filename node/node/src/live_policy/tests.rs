// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use weir_policy::KeyPath;
use weir_units::BitRate;

use super::*;

const ANY: ChangeRequest<'_> = ChangeRequest {
    who: "uid 0",
    own: false,
    number: None,
    apply: None,
    may: &|_, _, _| Ok(()),
    sees: &|_, _| true,
};

fn at_start(name: &str) -> (LivePolicy, PathBuf) {
    let name = format!("weir-live-policy-{name}-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let _absent = std::fs::remove_dir_all(&path);
    (open(&path), path)
}

fn open(path: &Path) -> LivePolicy {
    LivePolicy::open(TEXT, Path::new("node.toml"), &StateDir::at(path)).unwrap().0
}

fn rate(rate: &str) -> Vec<Edit> {
    vec![Edit::set(KeyPath::vif("a", "send.rate"), rate)]
}

#[test]
fn a_change_and_its_undo_leave_the_document_byte_for_byte() {
    let (mut live, path) = at_start("undo");
    let before = live.in_force();
    let mut asked = Vec::new();
    let apply: ApplyPolicy<'_> = &mut |policy| {
        asked.push(policy.vifs[0].send.rate.map(|rate| rate.to_string()));
        Ok(())
    };
    live.change(&ANY, &rate("5Mbit"), apply).unwrap();
    live.change(&ANY, &rate("6Mbit"), apply).unwrap();
    assert_eq!(live.in_force().overlay[0].after, Some("6Mbit".into()));
    let refused = live.undo(&ANY, Some(1), apply).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Conflict);
    assert_eq!(
        refused.message,
        "change 1: vif \"a\".send.rate is \"6Mbit\" now, not \"5Mbit\": it was changed since"
    );
    assert_eq!(live.undo(&ANY, None, apply).unwrap().undoes, Some(2));
    assert_eq!(live.undo(&ANY, None, apply).unwrap().undoes, Some(1));
    assert_eq!(live.undo(&ANY, None, apply).unwrap_err().kind, RefusalKind::NotFound);
    assert_eq!(live.in_force().document, before.document);
    assert_eq!(live.in_force().policy, before.policy);
    assert_eq!(asked.last(), Some(&None));
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_change_is_foreseen_without_being_made_and_sent_twice_is_made_once() {
    let (mut live, path) = at_start("foresee");
    let before = live.in_force();
    let mut checked = 0;
    let check: ApplyPolicy<'_> = &mut |_| {
        checked += 1;
        Ok(())
    };
    let foreseen = live.foresee(&ANY, &rate("5Mbit"), check).unwrap();
    assert_eq!(
        (live.in_force().document, live.in_force().policy),
        (before.document, before.policy)
    );
    assert_eq!((foreseen.id, checked), (1, 1));
    let refused = live.foresee(&ANY, &rate("5Mbit"), &mut |_| {
        Err(Refusal::new(RefusalKind::Refused, "no place in the pool"))
    });
    assert_eq!(refused.unwrap_err().message, "no place in the pool");
    let much = [Edit::set(KeyPath::vif("a", "send.min_rate"), "2Gbit")];
    assert!(live.foresee(&ANY, &much, &mut |_| panic!("unsound")).is_err());
    let first = ChangeRequest { number: Some(1), ..ANY };
    let made = live.change(&first, &rate("5Mbit"), &mut |_| Ok(())).unwrap();
    assert_eq!(made.edits, foreseen.edits);
    let again = live.change(&first, &rate("5Mbit"), &mut |_| panic!("made already")).unwrap_err();
    assert_eq!(again.kind, RefusalKind::Conflict);
    assert_eq!(again.message, "expected change number 2, got 1: the policy was changed meanwhile");
    std::fs::remove_dir_all(path).unwrap();
}

/// An apply of a plan uses up a number whose request may still be on its way; its id stays in the
/// record over a restart.
#[test]
fn a_change_without_edits_uses_its_number_up() {
    let (mut live, path) = at_start("used-up");
    let base = live.in_force();
    let ours = ChangeRequest { number: Some(1), apply: Some("a-1"), ..ANY };
    let made = live.change(&ours, &[], &mut |_| Ok(())).unwrap();
    assert_eq!((made.id, made.apply.as_deref(), made.edits.len()), (1, Some("a-1"), 0));
    let late = live.change(&ours, &rate("5Mbit"), &mut |_| panic!("late")).unwrap_err();
    assert_eq!(late.kind, RefusalKind::Conflict);
    let mut again = open(&path);
    assert_eq!(again.changes(9, &|_| true), [made]);
    assert_eq!(again.in_force().document, base.document);
    let late = again.change(&ours, &rate("5Mbit"), &mut |_| panic!("late")).unwrap_err();
    assert_eq!(late.kind, RefusalKind::Conflict);
    std::fs::remove_dir_all(path).unwrap();
}

/// A database of the first version, whose changes have no `apply`, is read and goes on.
#[test]
fn a_record_of_the_first_version_is_taken_over() {
    use sqlx::{ConnectOptions, Connection, sqlite::SqliteConnectOptions};

    let (mut live, path) = at_start("first-version");
    let made = live.change(&ANY, &rate("5Mbit"), &mut |_| Ok(())).unwrap();
    let file = live.store.path().to_owned();
    drop(live);
    futures_executor::block_on(async {
        let mut old = SqliteConnectOptions::new().filename(&file).connect().await.unwrap();
        let first = "ALTER TABLE change DROP COLUMN apply; PRAGMA user_version = 1";
        sqlx::raw_sql(first).execute(&mut old).await.unwrap();
        old.close().await.unwrap();
    });
    let mut again = open(&path);
    assert_eq!(again.changes(9, &|_| true), [made]);
    let ours = ChangeRequest { apply: Some("a-1"), ..ANY };
    again.change(&ours, &rate("6Mbit"), &mut |_| Ok(())).unwrap();
    drop(again);
    assert_eq!(open(&path).changes(1, &|_| true)[0].apply.as_deref(), Some("a-1"));
    std::fs::remove_dir_all(path).unwrap();
}

/// Goal: a change holds after a restart, with the values derived from it, and can be undone.
#[test]
fn changes_and_their_record_outlive_the_node() {
    let (mut live, path) = at_start("restart");
    let base = live.in_force();
    live.change(&ANY, &rate("50Mbit"), &mut |_| Ok(())).unwrap();
    let before = live.in_force();
    let mut again = open(&path);
    assert_eq!(again.in_force().policy, before.policy);
    assert_eq!(again.in_force().document, before.document);
    again.undo(&ANY, None, &mut |_| Ok(())).unwrap();
    assert_eq!(again.in_force().document, base.document);
    assert_eq!(open(&path).in_force().document, base.document);
    std::fs::remove_dir_all(path).unwrap();
}

/// Goal: each refusal names the thing, the value and the bound; only the last change reaches the
/// worker.
#[test]
fn what_is_refused_leaves_everything_as_it_was() {
    let (mut live, path) = at_start("refused");
    let before = live.in_force();
    let mut asked = 0;
    let apply: ApplyPolicy<'_> = &mut |_| {
        asked += 1;
        Err(Refusal::new(RefusalKind::Refused, "no place in the pool"))
    };
    let no: ChangeRequest<'_> = ChangeRequest {
        who: "token t",
        own: true,
        number: None,
        apply: None,
        may: &|_, _, _| Err(Refusal::new(RefusalKind::Forbidden, "not yours")),
        sees: &|_, _| false,
    };
    let nowhere = [Edit::set(KeyPath::vif("b", "send.rate"), "1Mbit")];
    let too_much = [Edit::set(KeyPath::vif("a", "send.min_rate"), "2Gbit")];
    for (wish, edits, kind, text) in [
        (&ANY, &nowhere[..], RefusalKind::NotFound, "there is no vif \"b\""),
        (&ANY, &too_much, RefusalKind::Refused, "2Gbit"),
        (&no, &rate("5Mbit"), RefusalKind::Forbidden, "not yours"),
        // A change that does not fit is also refused as forbidden first.
        (&no, &too_much, RefusalKind::Forbidden, "not yours"),
        (&ANY, &rate("5Mbit"), RefusalKind::Refused, "no place in the pool"),
    ] {
        let refused = live.change(wish, edits, apply).unwrap_err();
        assert_eq!(refused.kind, kind, "{refused}");
        assert!(refused.message.contains(text), "{refused}");
    }
    assert_eq!(asked, 1);
    assert_eq!(live.in_force().document, before.document);
    assert!(live.changes(9, &|_| true).is_empty() && !path.exists());
}

/// Another tenant's guarantee fills the port. A caller that may not see it learns no number of it.
#[test]
fn guarantees_of_others_are_not_disclosed() {
    let (mut live, path) = at_start("others");
    let minimum = |rate| [Edit::set(KeyPath::vif("a", "send.min_rate"), rate)];
    let asker = ChangeRequest { sees: &|_, problem| problem.place.table == "vif", ..ANY };
    let refused = live.change(&asker, &minimum("2Gbit"), &mut |_| Ok(())).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Refused);
    let told = "not enough capacity beside other tenants' guarantees";
    assert_eq!(refused.message, told);
    let refused = live.change(&asker, &minimum("much"), &mut |_| Ok(())).unwrap_err();
    assert!(refused.message.starts_with("vif \"a\".send.min_rate: \"much\""), "{refused}");
    live.change(&ANY, &minimum("1Gbit"), &mut |_| Ok(())).unwrap();
    std::fs::remove_dir_all(path).unwrap();
}

/// Goal: if the record cannot be written, the worker returns to the old policy, and the caller is
/// told.
#[test]
fn what_cannot_be_written_down_is_not_done() {
    // The database does not exist and cannot be made.
    let mut live = at_start("full").0;
    live.store = PolicyStore::open(Path::new("/proc/weir/policy.sqlite")).unwrap().0;
    let mut asked = Vec::new();
    let refused = live.change(&ANY, &rate("5Mbit"), &mut |policy| {
        asked.push(policy.vifs[0].send.rate.is_some());
        Ok(())
    });
    assert_eq!(refused.unwrap_err().kind, RefusalKind::NotRecorded);
    assert_eq!(asked, [true, false], "there, and back");
    assert!(live.in_force().overlay.is_empty() && live.changes(9, &|_| true).is_empty());
    assert!(!live.store.path().exists());
}

/// Goal: if the overlay cannot be written, the old text of the file stays in force, for the worker
/// and for readers.
#[test]
fn a_reload_that_cannot_be_kept_goes_back() {
    let (mut live, path) = at_start("reload");
    live.change(&ANY, &rate("5Mbit"), &mut |_| Ok(())).unwrap();
    let before = live.in_force();
    live.store = PolicyStore::open(Path::new("/proc/weir/policy.sqlite")).unwrap().0;
    let mut asked = Vec::new();
    let text = TEXT.replace("1Gbit", "2Gbit");
    let refused = live.reload("signal", &text, Path::new("node.toml"), &mut |policy| {
        asked.push(policy.ports[0].rate.to_string());
        Ok(())
    });
    assert_eq!(refused.unwrap_err().kind, RefusalKind::NotRecorded);
    assert_eq!(asked, ["2Gbit", "1Gbit"], "there, and back");
    assert_eq!(live.in_force().document, before.document);
    assert_eq!(live.changes(9, &|_| true).len(), 1);
    std::fs::remove_dir_all(path).unwrap();
}

/// Goal: if a live minimum and a later one of the file exceed the port's rate, the start fails and
/// names the remedy, which works.
#[test]
fn an_overlay_that_does_not_fit_any_more_can_be_put_aside() {
    let (mut live, path) = at_start("aside");
    let minimum = |rate| Edit::set(KeyPath::vif("a", "send.min_rate"), rate);
    live.change(&ANY, &[minimum("900Mbit")], &mut |_| Ok(())).unwrap();
    let other = "[[vif]]\nname = \"b\"\nslice = \"gold\"\nsend = { min_rate = \"200Mbit\" }\n";
    let text = format!("{TEXT}{other}");
    let (config, state) = (Path::new("node.toml"), StateDir::at(&path));
    let refused = LivePolicy::open(&text, config, &state).unwrap_err().to_string();
    assert!(refused.contains("--without-overlay"), "{refused}");
    let aside = put_edits_aside(&text, config, &state).unwrap().unwrap();
    let kept = std::fs::read_to_string(&aside).unwrap();
    assert!(kept.contains("900Mbit"), "{kept}");
    let (live, _) = LivePolicy::open(&text, config, &state).unwrap();
    assert!(live.in_force().overlay.is_empty());
    assert_eq!(live.changes(9, &|_| true).len(), 1, "the record stays");
    assert_eq!(put_edits_aside(&text, config, &state).unwrap(), None);
    std::fs::remove_dir_all(path).unwrap();
}

/// Goal: a file that is no database stops the start, `--without-overlay` helps, and nothing is
/// deleted.
#[test]
fn a_damaged_database_can_be_put_aside() {
    let (_, path) = at_start("damaged");
    let (config, state) = (Path::new("node.toml"), StateDir::at(&path));
    std::fs::create_dir_all(&path).unwrap();
    for number in 0..2 {
        std::fs::write(policy_store::path(&state, "node"), "no database".repeat(99)).unwrap();
        let refused = LivePolicy::open(TEXT, config, &state).unwrap_err().to_string();
        assert!(refused.contains("--without-overlay"), "{refused}");
        let aside = put_edits_aside(TEXT, config, &state).unwrap().unwrap();
        assert_eq!(aside.extension().unwrap().to_str(), Some(&*format!("aside-{number}")));
        assert!(aside.exists());
        open(&path);
    }
    std::fs::remove_dir_all(path).unwrap();
}

/// Goal: the file wins where its value has changed. A value in another unit, or a default written
/// out, is no change.
#[test]
fn a_key_that_the_file_changed_drops_its_edit_at_start_and_at_reload() {
    let text = format!("{TEXT}send = {{ min_rate = \"20Mbit\" }}\n{OTHER}");
    let (config, path) = (Path::new("node.toml"), at_start("dropped").1);
    let state = StateDir::at(&path);
    let (mut live, _) = LivePolicy::open(&text, config, &state).unwrap();
    let come = serde_json::json!({ "name": "c", "slice": "gold", "receive": { "rate": "5Mbit" } });
    let edits = [
        Edit::set(KeyPath::vif("a", "send.min_rate"), "30Mbit"),
        Edit::set(KeyPath::vif("a", "receive.min_rate"), "10Mbit"),
        Edit::unset(KeyPath::vif("b", "")),
        Edit::set(KeyPath::vif("c", ""), come),
    ];
    live.change(&ANY, &edits, &mut |_| Ok(())).unwrap();
    let holds = live.in_force();
    for (from, to, dropped) in [
        ("20Mbit", "20000kbit", &[][..]),
        (" }", " }\nreceive = { min_rate = \"0bit\" }", &[]),
        (
            "20Mbit",
            "25Mbit",
            &["vif \"a\".send.min_rate: the file says \"25Mbit\" now, so \"30Mbit\" is dropped"],
        ),
        (OTHER, "", &["vif \"b\": the file says nothing now, so its removal is dropped"]),
        (
            "\"b\"",
            "\"c\"",
            &[
                "vif \"b\": the file says nothing now, so its removal is dropped",
                "vif \"c\": the file says a whole table now, so a whole table is dropped",
            ],
        ),
    ] {
        let changed = text.replace(from, to);
        let (start, lost) = LivePolicy::open(&changed, config, &state).unwrap();
        assert_eq!(lost, dropped, "{to}");
        let (mut reloaded, _) = LivePolicy::open(&text, config, &StateDir::at(&path)).unwrap();
        // Nothing is to be kept of it.
        reloaded.store = PolicyStore::open(&path.join("other.sqlite")).unwrap().0;
        let lost = reloaded.reload("signal", &changed, config, &mut |_| Ok(())).unwrap();
        assert_eq!(lost, dropped, "{to}");
        assert_eq!(reloaded.in_force().document, start.in_force().document);
        if dropped.is_empty() {
            assert_eq!(start.in_force().policy, holds.policy, "{to}");
        }
        std::fs::remove_file(path.join("other.sqlite")).unwrap();
    }
    std::fs::remove_dir_all(path).unwrap();
}

/// Goal: a burst that an old overlay lists although it is derived from its rate stays derived.
#[test]
fn what_an_earlier_version_kept_is_taken_over_and_put_aside() {
    let (_, path) = at_start("old");
    let state = StateDir::at(&path);
    std::fs::create_dir_all(&path).unwrap();
    let [overlay, record] = old_files::paths(&state, "node");
    std::fs::write(&overlay, OLD_OVERLAY).unwrap();
    std::fs::write(&record, OLD_RECORD).unwrap();
    let mut live = open(&path);
    let holds = live.in_force();
    assert_eq!(holds.policy.vifs[0].send.rate.unwrap().to_string(), "50Mbit");
    assert_eq!(holds.overlay.len(), 1, "{:?}", holds.overlay);
    let told = live.take_over_old_files().unwrap();
    assert!(told.contains("overlay-node.json, of an earlier version, is in"), "{told}");
    assert!(!overlay.exists() && !record.exists());
    assert!(path.join("overlay-node.json.old").exists());
    assert_eq!(live.take_over_old_files(), None);
    let mut again = open(&path);
    assert_eq!(again.in_force().document, holds.document);
    assert_eq!(again.undo(&ANY, None, &mut |_| Ok(())).unwrap().undoes, Some(41));
    assert!(again.in_force().overlay.is_empty());
    // A crash between the database's commit and the rename: the database holds.
    std::fs::write(&overlay, OLD_OVERLAY).unwrap();
    let mut again = open(&path);
    assert!(again.in_force().overlay.is_empty());
    assert!(again.take_over_old_files().is_some() && !overlay.exists());
    std::fs::remove_dir_all(path).unwrap();
}

/// Goal: if the database is removed while the node runs, the next change writes all of it anew.
#[test]
fn a_database_that_somebody_removed_is_written_anew() {
    let (mut live, path) = at_start("removed");
    live.change(&ANY, &rate("5Mbit"), &mut |_| Ok(())).unwrap();
    policy_store::files(&StateDir::at(&path), "node").iter().for_each(|file| {
        std::fs::remove_file(file).unwrap();
    });
    let minimum = Edit::set(KeyPath::vif("a", "receive.min_rate"), "1Mbit");
    live.change(&ANY, &[minimum], &mut |_| Ok(())).unwrap();
    let again = open(&path);
    assert_eq!(again.in_force().overlay, live.in_force().overlay);
    assert_eq!(again.changes(9, &|_| true), live.changes(9, &|_| true));
    std::fs::remove_dir_all(path).unwrap();
}

/// Goal: the database holds the newest changes, as many as the policy says.
#[test]
fn the_record_on_disk_is_bounded() {
    let (_, path) = at_start("bounded");
    let text = format!("{TEXT}[api]\nchanges = 5\n");
    let (config, state) = (Path::new("node.toml"), StateDir::at(&path));
    let (mut live, _) = LivePolicy::open(&text, config, &state).unwrap();
    for mbit in 1..=12 {
        live.change(&ANY, &rate(&format!("{mbit}Mbit")), &mut |_| Ok(())).unwrap();
    }
    let (_, stored) = PolicyStore::open(live.store.path()).unwrap();
    let stored = stored.unwrap();
    let ids: Vec<u64> = stored.changes.iter().map(|change| change.id).collect();
    assert_eq!(ids, [8, 9, 10, 11, 12]);
    assert_eq!(stored.changes, live.changes(99, &|_| true));
    assert_eq!(stored.edits.len(), 1);
    std::fs::remove_dir_all(path).unwrap();
}

/// Goal: after `kill -9` at any moment the policy of the last change that was answered holds, or
/// the one of the change under way; and the record says the same as the edits.
/// Method: another process makes changes as fast as it can, is killed at many moments, and what it
/// left is read.
#[test]
fn after_a_kill_either_the_old_or_the_new_policy_holds() {
    let (_, path) = at_start("killed");
    let mut done = 0;
    for round in 0..KILLS {
        let test = "live_policy::tests::changes_until_it_is_killed";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(KILLED_STATE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut number = |line: String| line.strip_prefix("made ")?.parse::<u64>().ok();
        let first = lines.by_ref().find_map(&mut number).unwrap();
        assert!(first > done, "it goes on where the last one was killed");
        std::thread::sleep(Duration::from_micros(377 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let answered = lines.filter_map(&mut number).last().unwrap_or(first);
        let live = open(&path);
        let holds = live.in_force();
        let holds = holds.policy.vifs[0].send.rate.unwrap();
        done = holds.as_bps() / 1000 - 1000;
        assert!((answered..=answered + 1).contains(&done), "{done} holds, {answered} was answered");
        let newest = live.changes(1, &|_| true);
        assert_eq!(newest[0].edits[0].after, Some(holds.to_string().into()));
        assert_eq!(newest[0].id, done);
    }
    std::fs::remove_dir_all(path).unwrap();
}

/// The other process of the test above.
#[test]
fn changes_until_it_is_killed() {
    let Some(path) = std::env::var_os(KILLED_STATE) else { return };
    let mut live = open(Path::new(&path));
    loop {
        let number = live.changes(1, &|_| true).first().map_or(0, |change| change.id) + 1;
        let rate = rate(&BitRate::from_bps((1000 + number) * 1000).to_string());
        live.change(&ANY, &rate, &mut |_| Ok(())).unwrap();
        println!("made {number}");
    }
}

/// Goal: a vif that was added live is there after a restart, with its changes.
#[test]
fn vifs_come_and_go_live_and_stay_so() {
    let (mut live, path) = at_start("vifs");
    let base = live.in_force();
    let item = serde_json::json!({ "name": "b", "slice": "gold" });
    let come = Edit::set(KeyPath::vif("b", ""), item);
    let later = Edit::set(KeyPath::vif("b", "send.rate"), "7Mbit");
    live.change(&ANY, std::slice::from_ref(&come), &mut |_| Ok(())).unwrap();
    live.change(&ANY, &[later], &mut |_| Ok(())).unwrap();
    let twice = live.change(&ANY, &[come], &mut |_| Ok(())).unwrap_err();
    assert_eq!(twice.kind, RefusalKind::Conflict);
    let mut again = open(&path);
    assert_eq!(again.in_force().policy, live.in_force().policy);
    let gone = Edit::unset(KeyPath::vif("a", ""));
    again.change(&ANY, &[gone], &mut |_| Ok(())).unwrap();
    let mut again = open(&path);
    let names = |live: &LivePolicy| {
        let policy = live.in_force().policy;
        policy.vifs.iter().map(|vif| vif.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&again), ["b"]);
    for _ in 0..3 {
        again.undo(&ANY, None, &mut |_| Ok(())).unwrap();
    }
    assert_eq!(again.in_force().document, base.document);
    std::fs::remove_dir_all(path).unwrap();
}

const TEXT: &str = "version = 1\n[[port]]\nname = \"up0\"\nrate = \"1Gbit\"\n[[slice]]\n\
                    name = \"gold\"\n[[vif]]\nname = \"a\"\nslice = \"gold\"\n";

const KILLED_STATE: &str = "WEIR_TEST_KILLED_STATE";
const KILLS: u64 = 40;

const OTHER: &str = "[[vif]]\nname = \"b\"\nslice = \"gold\"\n";

/// An overlay in the form of the version before, after a change of one rate.
const OLD_OVERLAY: &str = include_str!("overlay-node.json");
const OLD_RECORD: &str = include_str!("changes-node.jsonl");
