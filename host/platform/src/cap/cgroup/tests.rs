// SPDX-License-Identifier: Apache-2.0 OR MIT
use std::time::Duration;

use super::*;
use crate::control_group::disable;

/// A folder with the files of a group, without a kernel behind them.
struct Fake(PathBuf);

impl Fake {
    fn new(test: &str, files: &[(&str, &str)]) -> Self {
        let path = std::env::temp_dir().join(format!("weir-cgroup-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        for (name, text) in files {
            fs::write(path.join(name), text).unwrap();
        }
        Self(path)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }

    fn cap(&self, version: Version) -> CgroupCap {
        CgroupCap::new(self.0.clone(), version, shape())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn shape() -> QuotaShape {
    QuotaShape::for_sampling(Nanos::from_millis(1000), CpuShare::from_percent(200)).unwrap()
}

#[test]
fn the_tree_with_the_controller_is_found_whatever_the_version() {
    let both = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n\
                cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
    let tree = CgroupTree::among(both, |_| "hugetlb\n".to_owned()).unwrap();
    assert_eq!((tree.version, tree.enable), (Version::V1, false));
    assert_eq!(tree.group("weir-vr1"), Path::new("/sys/fs/cgroup/cpu,cpuacct/weir-vr1"));
    let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nsdelegate 0 0\n";
    let controllers = |path: &Path| match path.ends_with("cgroup.controllers") {
        true => "cpuset cpu io memory pids\n".to_owned(),
        false => "memory pids\n".to_owned(),
    };
    let tree = CgroupTree::among(unified, controllers).unwrap();
    assert_eq!((tree.version, tree.enable), (Version::V2, true));
    let [enable, group] = &make(&tree, "weir-test-none").unwrap()[..] else { panic!() };
    assert_eq!(
        enable.run[0].to_string(),
        "sh -c 'echo +cpu > /sys/fs/cgroup/cgroup.subtree_control'"
    );
    assert_eq!(enable.undo, Undo::DisableCpu(PathBuf::from("/sys/fs/cgroup")));
    assert_eq!(group.run[0].to_string(), "mkdir /sys/fs/cgroup/weir-test-none");
    let without = CgroupTree::among(unified, |_| String::new()).unwrap_err().to_string();
    assert!(without.contains("/sys/fs/cgroup has no controller cpu"), "{without}");
    let cpuset = "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n";
    assert!(CgroupTree::among(cpuset, |_| String::new()).is_err());
    for name in ["", ".", "../x", "a/b", "a b", &"a".repeat(201)] {
        assert!(make(&tree, name).is_err(), "{name:?}");
    }
}

#[test]
fn a_cap_of_version_2_is_one_line_and_release_takes_it_away() {
    let fake = Fake::new("v2", &[("cpu.max", "max 100000\n")]);
    let mut cap = fake.cap(Version::V2);
    assert_eq!(cap.in_force().unwrap(), None);
    assert_eq!(cap.set(CpuShare::from_percent(25)).unwrap(), CpuShare::from_percent(25));
    assert_eq!(fake.read("cpu.max"), "2500 10000");
    assert_eq!(cap.in_force().unwrap(), Some(CpuShare::from_percent(25)));
    fs::write(fake.0.join("cpu.max"), "").unwrap();
    let error = cap.in_force().unwrap_err().to_string();
    assert!(error.starts_with("cannot read "), "{error}");
    cap.release().unwrap();
    assert_eq!(fake.read("cpu.max"), "max");
    fs::write(fake.0.join("cpu.stat"), "usage_usec 5000\nuser_usec 1\n").unwrap();
    assert_eq!(cap.used().unwrap(), Nanos::from_millis(5));
    drop(fake);
    let gone = cap.set(CpuShare::ONE).unwrap_err();
    assert!(matches!(gone, CapError::Gone { .. }), "{gone}");
    cap.release().unwrap();
}

#[test]
fn a_cap_of_version_1_is_two_files_and_a_weight() {
    let files =
        [("cpu.cfs_quota_us", "-1\n"), ("cpu.cfs_period_us", "100000\n"), ("cpu.shares", "1024\n")];
    let fake = Fake::new("v1", &files);
    let mut cap = CgroupCap::own(fake.0.clone(), Version::V1, shape());
    assert_eq!(cap.in_force().unwrap(), None);
    for (percent, quota, period, weight) in
        [(50, "5000", "10000", "5120"), (2, "1000", "50000", "1024")]
    {
        let asked = CpuShare::from_percent(percent);
        assert_eq!(cap.set(asked).unwrap(), asked);
        assert!(fake.read("cpu.cfs_quota_us").starts_with(quota));
        assert!(fake.read("cpu.cfs_period_us").starts_with(period));
        assert_eq!(fake.read("cpu.shares"), weight);
    }
    cap.set(CpuShare::ONE).unwrap();
    cap.release().unwrap();
    assert_eq!([fake.read("cpu.cfs_quota_us"), fake.read("cpu.shares")], ["-1", "1024"]);
}

/// Goal: what a period of Weir's own group leaves over serves the next; a kernel that cannot do
/// that has the cap all the same (the test above), and another's group is left as it is.
#[test]
fn only_a_group_of_weirs_own_carries_over() {
    for (version, quota, burst) in [
        (Version::V1, "cpu.cfs_quota_us", "cpu.cfs_burst_us"),
        (Version::V2, "cpu.max", "cpu.max.burst"),
    ] {
        let files = [
            (quota, "-1 100000\n"),
            ("cpu.cfs_period_us", "100000\n"),
            ("cpu.shares", "1024\n"),
            ("cpu.weight", "100\n"),
            (burst, "0\n"),
        ];
        let fake = Fake::new(&format!("burst-{version:?}"), &files);
        fake.cap(version).set(CpuShare::ONE).unwrap();
        assert_eq!(fake.read(burst), "0\n");
        let mut own = CgroupCap::own(fake.0.clone(), version, shape());
        own.set(CpuShare::from_percent(1)).unwrap();
        assert_eq!(fake.read(burst), "1000");
    }
}

#[test]
fn a_group_of_version_2_has_its_weight_in_one_file() {
    let fake = Fake::new("weight", &[("cpu.max", "max 100000\n"), ("cpu.weight", "100\n")]);
    let mut own = CgroupCap::own(fake.0.clone(), Version::V2, shape());
    own.set(CpuShare::from_percent(25)).unwrap();
    assert_eq!([fake.read("cpu.max"), fake.read("cpu.weight")], ["2500 10000", "250"]);
    own.release().unwrap();
    assert_eq!([fake.read("cpu.max"), fake.read("cpu.weight")], ["max", "100"]);
    fs::write(fake.0.join("cpu.weight"), "7").unwrap();
    fake.cap(Version::V2).set(CpuShare::ONE).unwrap();
    assert_eq!(fake.read("cpu.weight"), "7", "its owner's");
}

/// The largest cap lacks no more than the least where both do not fit.
#[test]
fn a_weight_is_in_proportion_and_never_below_the_kernels_own() {
    let weights = |version| {
        [0, 5, 10, 36, 100, 6400].map(|percent| weight(version, CpuShare::from_percent(percent)))
    };
    assert_eq!(weights(Version::V1), [1024, 1024, 1024, 3686, 10_240, 262_144]);
    assert_eq!(weights(Version::V2), [100, 100, 100, 360, 1000, 10_000]);
}

/// The journal restores the limit that was in force in a group that others made.
#[test]
fn a_group_of_others_keeps_what_it_had() {
    let fake = Fake::new("adopt", &[("cpu.max", "30000 100000\n")]);
    let state = crate::StateDir::at(fake.0.join("state"));
    let mut journal = Journal::open(&state, "adopt", Duration::ZERO).unwrap();
    let group = fake.0.clone();
    let mut cap = CgroupCap::adopt(&mut journal, group, Version::V2, shape()).unwrap();
    cap.set(CpuShare::from_percent(90)).unwrap();
    assert_eq!(fake.read("cpu.max"), "9000 10000");
    let host = journal.host();
    journal.undo_all(&host).unwrap();
    assert_eq!(fake.read("cpu.max"), "30000 100000");
}

#[test]
fn texts_that_are_no_quota_are_none() {
    assert_eq!(parse("max 100000"), Some(None));
    assert_eq!(parse("5000 10000"), Some(Some(Quota { quota_us: 5000, period_us: 10_000 })));
    for text in ["", "max", "1", "a b", "5000 0", "-2 1000", "1 99999999999999999999999"] {
        assert_eq!(parse(text), None, "{text:?}");
    }
}

#[test]
fn the_group_of_a_process_is_that_of_the_controller() {
    let text = "3:cpuset:/\n1:cpu,cpuacct:/a.slice\n0::/b\n";
    assert_eq!(own_group(text, Version::V1), Some("/a.slice"));
    assert_eq!(own_group(text, Version::V2), Some("/b"));
    assert_eq!(own_group("1:cpuset:/\nx\n", Version::V1), None);
}

/// The controller of the whole host goes only where nobody else has come to use it.
#[test]
fn the_controller_goes_only_where_no_group_uses_it() {
    let fake = Fake::new("disable", &[("cgroup.subtree_control", "cpu memory\n")]);
    let group = fake.0.join("system.slice");
    fs::create_dir(&group).unwrap();
    let left = || fake.read("cgroup.subtree_control");
    let files = [
        ("cgroup.subtree_control", "memory\n", "cpu memory\n"),
        ("cpu.max", "max 100000\n", "20000 100000\n"),
        ("cpu.weight", "100\n", "50\n"),
        ("cpu.idle", "0\n", "1\n"),
    ];
    for (name, default, set) in files {
        fs::write(group.join(name), set).unwrap();
        disable(&fake.0).unwrap();
        assert_eq!(left(), "cpu memory\n", "{name}");
        fs::write(group.join(name), default).unwrap();
    }
    disable(&fake.0).unwrap();
    assert_eq!(left(), "-cpu");
    disable(&fake.0.join("gone")).unwrap();
}

/// The same weight means the same share in both versions.
#[test]
fn a_weight_of_a_hundred_is_the_kernels_own() {
    assert_eq!([1, 100, 300, 10_000].map(super::shares), [10, 1024, 3072, 102_400]);
}
