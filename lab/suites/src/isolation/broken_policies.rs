// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policies that do not stand, one for each kind of error.

/// A name, the document, and what the answer must hold: place, key, value and bound.
type Broken = (&'static str, &'static str, &'static [&'static str]);

/// One of each kind. The port of most is the first, in lines 2 to 4.
pub(super) const POLICIES: &[Broken] = &[
    ("not-toml", "version = 1\n[[port]\n", &["2:", "not TOML", "`]`"]),
    ("empty", "", &["1:1", "version", "missing"]),
    (
        "unknown-key",
        "version = 1\n[[port]]\nname = \"up0\"\nrate = \"100Mbit\"\nbandwidth = \"1Mbit\"\n",
        &["5:1: port \"up0\".bandwidth", "unknown key", "known here", "rate"],
    ),
    (
        "wrong-type",
        "version = 1\n[[port]]\nname = \"up0\"\nrate = 100\n",
        &["4:8: port \"up0\".rate", "100 is an integer", "must be a bit rate"],
    ),
    (
        "no-rate",
        "version = 1\n[[port]]\nname = \"up0\"\nrate = \"100Mb\"\n",
        &["4:8: port \"up0\".rate", "\"100Mb\" is not a bit rate", "100Mbit"],
    ),
    (
        "out-of-range",
        "version = 1\n[[port]]\nname = \"up0\"\nrate = \"100Mbit\"\noverhead = 257\n",
        &["5:12: port \"up0\".overhead", "257 is more than 256"],
    ),
    (
        "no-choice",
        "version = 1\n[[port]]\nname = \"up0\"\nrate = \"100Mbit\"\nscheduler = \"red\"\n",
        &["5:13: port \"up0\".scheduler", "\"red\"", "hfsc, wrr, drr, wfq, strict, fifo"],
    ),
    (
        "taken-name",
        "version = 1\n[[port]]\nname = \"up0\"\nrate = \"1Gbit\"\n[[slice]]\nname = \"a\"\n\
         [[slice]]\nname = \"a\"\n",
        &["8:8: slice \"a\".name", "already the name of a slice"],
    ),
    (
        "no-such-slice",
        "version = 1\n[[port]]\nname = \"up0\"\nrate = \"1Gbit\"\n[[slice]]\nname = \"gold\"\n\
         [[vif]]\nname = \"g.0\"\nslice = \"god\"\n",
        &["9:9: vif \"g.0\".slice", "there is no slice \"god\"", "did you mean \"gold\""],
    ),
    (
        "missing-key",
        "version = 1\n[[port]]\nname = \"up0\"\n",
        &["2:1: port \"up0\".rate", "missing"],
    ),
    (
        "bad-addresses",
        "version = 1\n[[port]]\nname = \"up0\"\nrate = \"1Gbit\"\n[[slice]]\nname = \"a\"\n\
         [[vif]]\nname = \"a.0\"\nslice = \"a\"\nmac = [\"02:00:00:00:00\"]\n\
         addresses = [\"10.0.0.256\"]\n",
        &["10:8: vif \"a.0\".mac 1", "02:00:00:00:00", "11:14", "10.0.0.256"],
    ),
    (
        "bad-queue",
        "version = 1\n[[port]]\nname = \"up0\"\nrate = \"1Gbit\"\n[[slice]]\nname = \"a\"\n\
         [[vif]]\nname = \"a.0\"\nslice = \"a\"\nsend = { queue = { packets = 0 } }\n",
        &["10:30: vif \"a.0\".send.queue.packets", "0 is less than 1"],
    ),
    (
        "above-its-limit",
        "version = 1\n[[port]]\nname = \"up0\"\nrate = \"1Gbit\"\n[[slice]]\nname = \"a\"\n\
         send = { min_rate = \"20Mbit\", rate = \"10Mbit\" }\n",
        &["7:21: slice \"a\".send.min_rate", "20Mbit is more than its rate, 10Mbit"],
    ),
    (
        "router-sum",
        "version = 1\n[[port]]\nname = \"up0\"\nrate = \"1Gbit\"\n[[slice]]\nname = \"a\"\n\
         [[router]]\nname = \"r\"\nslice = \"a\"\nsend = { min_rate = \"45Mbit\" }\n\
         [[vif]]\nname = \"a.0\"\nslice = \"a\"\nrouter = \"r\"\n\
         send = { min_rate = \"60Mbit\" }\n",
        &["10:21: router \"r\".send.min_rate", "45Mbit is less than 60Mbit, the sum"],
    ),
    (
        "slice-sum",
        "version = 1\n[[port]]\nname = \"up0\"\nrate = \"1Gbit\"\n[[slice]]\nname = \"a\"\n\
         send = { min_rate = \"20Mbit\" }\n\
         [[vif]]\nname = \"a.0\"\nslice = \"a\"\nsend = { min_rate = \"25Mbit\" }\n",
        &["7:21: slice \"a\".send.min_rate", "20Mbit is less than 25Mbit, the sum"],
    ),
    (
        "port-sum",
        "version = 1\n[[port]]\nname = \"up0\"\nrate = \"100Mbit\"\n\
         [[slice]]\nname = \"a\"\nsend = { min_rate = \"60Mbit\" }\n\
         [[slice]]\nname = \"b\"\nsend = { min_rate = \"50Mbit\" }\n",
        &["4:8: port \"up0\".rate", "send.min_rate add up to 110Mbit", "at most 100Mbit fit"],
    ),
];
