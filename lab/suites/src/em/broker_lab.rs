// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two virtual networks of routers with SSH servers, and a broker beside them: real programs in
//! namespaces (`lab/scenarios/em`).
//!
//! The broker reaches the routers over links of its own. End nodes have an address and a default
//! route, and nothing is installed there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process};

use serde::de::DeserializeOwned;
use serde_json::Value;
use weir_client::{Client, ClientError, Method};
use weir_experiment::prelude::*;
use weir_experiment::run_folder::RunFolder;
use weir_experiment::weir_program::{RunningProgram, WeirProgram, spawn_logged};
use weir_experiment::{build_lab, clock};
use weir_platform::StateDir;
use weir_platform::netns::Namespace;
use weir_platform::run::{Command, Host, Platform};
use weir_testbed::{End, Lab, Topology};
use weir_traffic::Mac;

/// Files of a lab, and its routers.
#[derive(Clone, Copy, Debug)]
pub(super) struct BrokerScenario<'s> {
    pub(super) topology: &'s str,
    pub(super) configuration: &'s str,
    /// Routers in the order of their management links.
    pub(super) routers: &'s [&'s str],
}

/// The network, its SSH servers and the broker's files. Dropping this value removes everything.
pub struct BrokerLab {
    routers: usize,
    program: WeirProgram,
    token: String,
    /// SSH servers by node, each with the number of its management link.
    servers: BTreeMap<String, (usize, EndedChild)>,
    lab: Lab,
    place: RunFolder,
}

impl BrokerLab {
    /// Builds the network and starts the SSH servers. [`Self::broker`] starts the broker.
    ///
    /// # Errors
    /// There is no SSH server, or the lab cannot be built.
    pub fn up() -> Result<Self> {
        Self::with(CONFIGURATION)
    }

    /// Builds the network with a broker that waits long for silent routers, so that connections do
    /// not leave a router that is only slow.
    pub(super) fn patient() -> Result<Self> {
        Self::with(&patient("100Mbit", "1s"))
    }

    /// Builds the network with links of another rate, such as `10Gbit`, and a broker that compares
    /// routers only every ten seconds, since an emulated machine is slow.
    pub(super) fn with_links(rate: &str) -> Result<Self> {
        Self::with(&patient(rate, "10s"))
    }

    /// Builds the network with 5 ms more on the path of `blue` by `b3`.
    pub(super) fn with_longer_path() -> Result<Self> {
        let end = "b = { at = \"b3:b1\", addresses = [\"fd10:13::2/64\", \"fe80::2/64\"] }\n";
        let topology = TOPOLOGY.replace(end, &format!("{end}delay = \"5ms\"\n"));
        let (before, after) = CONFIGURATION.split_once("name = \"b1-b3\"").unwrap_or_default();
        let after = after.replacen("delay = \"1ms\"", "delay = \"6ms\"", 1);
        let configuration = format!("{before}name = \"b1-b3\"{after}");
        Self::of(&BrokerScenario {
            topology: &topology,
            configuration: &configuration,
            routers: &ROUTERS,
        })
    }

    /// Builds the network with links that are VLANs (8021q) on their devices and have the devices'
    /// names, with tunnels of `ip6tnl`, and with a broker that compares routers at the interval
    /// `check`. `None` if this kernel has no 8021q or no `ip6tnl`.
    pub(super) fn on_vlans(rate: &str, check: &str) -> Result<Option<Self>> {
        let router = "[[network.router]]\n";
        let with_devices = format!("{router}encapsulation = \"ip6tnl\"\n");
        let lab = Self::with(&patient(rate, check).replace(router, &with_devices))?;
        if lab.run("b1", Command::new("sh", ["-ec", PROBE])).is_err() {
            lab.down()?;
            return Ok(None);
        }
        let topology = Topology::parse(TOPOLOGY)
            .map_err(|problems| ExperimentError::Node(problems.to_string()))?;
        let mut routers = BTreeSet::new();
        for link in &topology.links {
            let ends = link.ends.each_ref().map(|end| (end, &topology.nodes[end.node]));
            let between_routers = ends.iter().all(|(_, node)| ROUTERS.contains(&&*node.name));
            for (end, node) in ends.into_iter().filter(|_| between_routers) {
                lab.run(&node.name, Command::batch("ip", vlan_lines(end)))?;
                routers.insert(end.node);
            }
        }
        for node in routers.into_iter().map(|number| &topology.nodes[number]) {
            let replace = |route: &String| format!("route replace {route}");
            lab.run(&node.name, Command::batch("ip", node.routes.iter().map(replace)))?;
        }
        Ok(Some(lab))
    }

    /// Builds the network for a broker with another store.
    pub(super) fn on_store(url: &str) -> Result<Self> {
        Self::with(&CONFIGURATION.replace("store.sqlite", url))
    }

    fn with(configuration: &str) -> Result<Self> {
        Self::of(&BrokerScenario { topology: TOPOLOGY, configuration, routers: &ROUTERS })
    }

    /// Builds another network, as [`Self::up`] does.
    pub(super) fn of(scenario: &BrokerScenario<'_>) -> Result<Self> {
        if !Path::new(SSHD).exists() {
            let (what, needs) = ("a broker's lab".to_owned(), "openssh-server".to_owned());
            return Err(ExperimentError::Missing { what, needs });
        }
        weir_experiment::product::broker_path()?;
        weir_traffic::stop_on_signals()?;
        let place = RunFolder::take(NAME, &StateDir::from_env())?;
        let lab = build_lab(scenario.topology, &place)?;
        let program = WeirProgram::new(lab.namespace(MANAGEMENT)?, place.folder())?;
        let (token, digest) =
            weir_api::token::new().map_err(|error| ExperimentError::io("token", error))?;
        let (servers, routers) = (BTreeMap::new(), scenario.routers.len());
        let mut built = Self { routers, program, token, servers, lab, place };
        let host_key = built.make_keys()?;
        let mut file = scenario.configuration.replace("HOST_KEY", &host_key);
        file = file.replace("TOKEN_SHA256", &digest.to_string());
        built.write("token", &built.token)?;
        for network in ["blue", "red"] {
            let (token, digest) =
                weir_api::token::new().map_err(|error| ExperimentError::io("token", error))?;
            built.write(&format!("token-{network}"), &token)?;
            file += &format!(
                "\n[[broker.token]]\nname = \"{network}\"\nsha256 = \"{digest}\"\n\
                 network = \"{network}\"\n"
            );
        }
        built.write("broker.toml", &file)?;
        built.free_links(&file)?;
        for (index, router) in scenario.routers.iter().enumerate() {
            built.start_server(router, index + 1)?;
        }
        Ok(built)
    }

    /// Removes the lab's queueing discipline from the links of routers, since the broker leaves a
    /// root discipline of others alone.
    fn free_links(&self, configuration: &str) -> Result {
        let wrong = |error: toml::de::Error| ExperimentError::Node(error.to_string());
        let file: Value = toml::from_str(configuration).map_err(wrong)?;
        let of = |value: &Value, key| value[key].as_array().cloned().unwrap_or_default();
        for link in of(&file, "network").iter().flat_map(|network| of(network, "link")) {
            for end in [&link["a"], &link["b"]] {
                if let (Some(router), Some(device)) =
                    (end["router"].as_str(), end["device"].as_str())
                {
                    self.run(router, Command::line(&format!("tc qdisc del dev {device} root")))?;
                }
            }
        }
        Ok(())
    }

    /// Starts a broker, and waits until it answers and reaches all routers.
    ///
    /// # Errors
    /// The broker ends, or does not answer in time.
    pub fn broker(&self) -> Result<RunningProgram> {
        let mut broker = self.program.start(&["broker", "run", "broker.toml"])?;
        let mut missing = "an answer".to_owned();
        let answers = clock::wait_for(STARTED_WITHIN, POLL, || {
            if !broker.is_alive() {
                return Ok(Some(false));
            }
            let Ok(networks) = self.ask(Method::GET, "/v1/networks", None) else { return Ok(None) };
            let networks = networks.as_array().into_iter().flatten();
            let of = |key| networks.clone().flat_map(move |of| of[key].as_array()).flatten();
            let reached = of("routers").filter(|of| of["reachable"] == true).count();
            let is_kept = |of: &&Value| of["reachable"] == true && of["fault"].is_null();
            let faulty = of("nodes").find(|of| !is_kept(of));
            missing = format!("{reached} of {} routers, node {faulty:?}", self.routers);
            Ok((reached == self.routers && faulty.is_none()).then_some(true))
        })?;
        if answers == Some(true) {
            return Ok(broker);
        }
        let said = broker.end_within(Duration::ZERO)?.said;
        Err(ExperimentError::Node(format!("the broker did not start: {missing}: {said}")))
    }

    /// Returns the folder with `broker.toml`, `cert.pem` and `token`.
    pub fn folder(&self) -> &Path {
        self.place.folder()
    }

    /// Sends a request to the broker and returns the answer.
    pub(super) fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        let broken = |error: ExperimentError| ClientError::Io {
            endpoint: BROKER.to_owned(),
            error: std::io::Error::other(error.to_string()),
        };
        let client = self.client().map_err(broken)?;
        self.within(|| client.ask(method, path, body)).map_err(broken)?
    }

    /// Asks for connections, 20 at a time, and returns the answers.
    pub(super) fn connect_many(&self, requests: &[Value]) -> Result<Vec<Value>> {
        let client = self.client()?;
        let ask = |body: &Value| client.ask(Method::POST, "/v1/connections", Some(body));
        self.many(requests, |body| Ok(ask(body)?))
    }

    /// Removes connections, 20 at a time.
    pub(super) fn remove_many(&self, connections: &[Value]) -> Result {
        let client = self.client()?;
        let ask = |path: &str| client.ask::<()>(Method::DELETE, path, None::<&()>);
        self.many(connections, |of| Ok(ask(&connection_path(of))?)).map(drop)
    }

    /// Calls `work` with each value in the broker's namespace, with 20 values at a time.
    fn many<T: Send>(
        &self,
        values: &[Value],
        work: impl Fn(&Value) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let (work, mut done) = (&work, Vec::with_capacity(values.len()));
        for some in values.chunks(20) {
            let all: Vec<Result<T>> = self.within(|| {
                std::thread::scope(|scope| {
                    let threads: Vec<_> =
                        some.iter().map(|value| scope.spawn(move || work(value))).collect();
                    threads.into_iter().map(weir_experiment::joined).collect()
                })
            })?;
            done.extend(all.into_iter().collect::<Result<Vec<_>>>()?);
        }
        Ok(done)
    }

    /// Removes a connection.
    pub(super) fn remove(&self, connection: &Value) -> Result {
        let path = connection_path(connection);
        let client = self.client()?;
        Ok(self.within(|| client.ask::<()>(Method::DELETE, &path, None::<&()>))??)
    }

    /// Returns a client, to be used within [`Self::within`].
    pub(super) fn client(&self) -> Result<Client> {
        let client = Client::remote(BROKER, Some(&self.file("cert.pem")));
        let client = client.map_err(|error| ExperimentError::io("cert.pem", error))?;
        Ok(client.with_token(&self.token))
    }

    /// Returns the broker's namespace.
    pub(super) fn management(&self) -> Result<Namespace> {
        Ok(self.lab.namespace(MANAGEMENT)?)
    }

    /// Runs `work` in the broker's namespace.
    pub(super) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        Ok(self.management()?.run(work)?)
    }

    /// Runs a command at a node and returns what it printed.
    pub(super) fn run(&self, node: &str, command: Command) -> Result<String> {
        run_at(node, command)
    }

    /// Returns `weir` in the namespace of a node, with a folder of the node's name.
    pub(super) fn program_at(&self, node: &str) -> Result<WeirProgram> {
        WeirProgram::new(self.lab.namespace(node)?, &self.file(node))
    }

    /// Starts a program at a node.
    pub(super) fn start(&self, node: &str, line: &str) -> Result<EndedChild> {
        let mut words = line.split(' ');
        let mut command = Process::new(words.next().unwrap_or_default());
        command.args(words);
        let log = self.file(&format!("{node}.log"));
        Ok(EndedChild(spawn_logged(&self.lab.namespace(node)?, command, &log)?))
    }

    /// Counts the outer addresses for which a router has routes or devices, and its entries, also
    /// if only a device or a rule of an entry is left. Reads the router itself, not the broker.
    pub(super) fn tunnels_at(&self, router: &str) -> Result<(usize, usize)> {
        let line = "ip -6 -j route show table main proto 87";
        let routes: Vec<Value> = parsed(&self.run(router, Command::line(line))?)?;
        let links: Vec<Value> = parsed(&self.run(router, Command::line("ip -j link show"))?)?;
        let names = links.iter().filter_map(|link| link["ifname"].as_str());
        let exits = names.clone().filter(|name| name.starts_with("wd")).count();
        let of_entries = names.filter_map(|name| name.strip_prefix("wc"));
        let is_number = |text: &str| text.parse::<u16>().is_ok();
        let entries = of_entries.clone().filter(|name| is_number(name)).count();
        let paths = of_entries.filter_map(|name| name.split_once('t'));
        // A path that has lost its entry counts as one.
        let paths = paths.filter(|(tunnel, _)| is_number(tunnel)).count();
        let rules: Vec<Value> = parsed(&self.run(router, Command::line("ip -6 -j rule"))?)?;
        let steers = |rule: &&Value| {
            let table = rule["table"].as_str().and_then(|table| table.parse::<u32>().ok());
            rule["protocol"] == "87" && table.is_some_and(|table| table < 2_000_000)
        };
        let rules = rules.iter().filter(steers).count();
        Ok((routes.len() + exits, entries.max(paths).max(rules)))
    }

    /// Sends a request with `curl`: path and options. Returns the answer and its status.
    pub(super) fn curl(&self, token: &str, path: &str, words: &[&str]) -> Result<(String, u16)> {
        let bearer = format!("Authorization: Bearer {token}");
        let (url, ca) = (format!("{BROKER}{path}"), self.file("cert.pem").display().to_string());
        let own = ["-gsS", "-w", "\n%{http_code}", "--cacert", &ca, "-H", &bearer, &url];
        let said = self.run(MANAGEMENT, Command::new("curl", [&own[..], words].concat()))?;
        let (text, status) = said.trim_end().rsplit_once('\n').unwrap_or(("", &said));
        Ok((text.to_owned(), status.trim().parse().unwrap_or_default()))
    }

    /// Asks for a connection with `curl`, in a format, and returns the answer, which is JSON.
    pub(super) fn post(&self, kind: &str, body: &str) -> Result<Value> {
        let words = ["-H", kind, "-d", body];
        let (said, status) = self.curl(&self.token, "/v1/connections", &words)?;
        if status != 201 {
            return Err(ExperimentError::Node(format!("{kind}: status {status}: {said}")));
        }
        parsed(&said)
    }

    /// Reads a connection's row from the store, from outside.
    pub(super) fn row(&self, id: &str) -> Result<Value> {
        let store = self.file("store.sqlite").display().to_string();
        let query = format!("SELECT record FROM connection WHERE id = '{id}'");
        let words = ["-readonly", store.as_str(), query.as_str()];
        parsed(&Host::default().run(&Command::new("sqlite3", words))?)
    }

    /// Runs `weir` in the broker's namespace, as the operator.
    pub(super) fn weir(&self, words: &[&str]) -> Result<String> {
        let ca = format!("WEIR_BROKER_CA={}", self.file("cert.pem").display());
        let (url, token) = (format!("WEIR_BROKER={BROKER}"), format!("WEIR_TOKEN={}", self.token));
        let program = weir_experiment::product::path()?.display().to_string();
        let own = [ca.as_str(), &url, &token, &program];
        self.run(MANAGEMENT, Command::new("env", [&own[..], words].concat()))
    }

    /// Starts `weir` in the broker's namespace, as the operator.
    pub(super) fn start_weir(&self, words: &[&str]) -> Result<RunningProgram> {
        let ca = self.file("cert.pem").display().to_string();
        let environment =
            [("WEIR_BROKER", BROKER), ("WEIR_BROKER_CA", &ca), ("WEIR_TOKEN", &self.token)];
        self.program.start_with(words, &environment)
    }

    /// Reads a file of the lab's folder.
    pub(super) fn read(&self, name: &str) -> Result<String> {
        let file = self.file(name);
        fs::read_to_string(&file).map_err(|error| ExperimentError::io(&file, error))
    }

    /// Takes everything down.
    ///
    /// # Errors
    /// A part cannot be removed.
    pub fn down(self) -> Result {
        let Self { servers, lab, place: _place, .. } = self;
        drop(servers);
        lab.down()?;
        Ok(())
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.place.folder().join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result {
        let file = self.file(name);
        fs::write(&file, text).map_err(|error| ExperimentError::io(&file, error))
    }

    /// Makes the broker's key, the routers' host key and the certificate. Returns the host key.
    fn make_keys(&self) -> Result<String> {
        for name in ["id", "host"] {
            let _none = fs::remove_file(self.file(name));
            let file = self.file(name).display().to_string();
            let words = ["-q", "-t", "ed25519", "-N", "", "-f", file.as_str()];
            Host::default().run(&Command::new("ssh-keygen", words))?;
        }
        make_certificate(BROKER_ADDRESS, |name, text| self.write(name, text))?;
        let file = self.file("host.pub");
        let key = fs::read_to_string(&file).map_err(|error| ExperimentError::io(&file, error))?;
        Ok(key.split(' ').take(2).collect::<Vec<_>>().join(" "))
    }

    /// Starts the SSH server of a node whose management link has that number.
    pub(super) fn start_server(&mut self, router: &str, number: usize) -> Result {
        // Debian's server wants this folder, which its service would make.
        let folder = "/run/sshd";
        fs::create_dir_all(folder).map_err(|error| ExperimentError::io(folder, error))?;
        let file = |name: &str| self.file(name).display().to_string();
        let text = format!(
            "ListenAddress [fd1f:{number}::2]:22\nHostKey {}\nAuthorizedKeysFile {}\n\
             StrictModes no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n\
             UsePAM no\nPidFile none\n",
            file("host"),
            file("id.pub"),
        );
        let name = format!("sshd-{router}");
        self.write(&name, &text)?;
        let mut command = Process::new(SSHD);
        command.args(["-D", "-e", "-f", &file(&name)]);
        let log = self.file(&format!("{name}.log"));
        let server = spawn_logged(&self.lab.namespace(router)?, command, &log)?;
        self.servers.insert(router.to_owned(), (number, EndedChild(server)));
        Ok(())
    }

    /// Ends the SSH server of a node, and all its sessions.
    pub(super) fn stop_server(&mut self, router: &str) -> Result<usize> {
        let Some((number, server)) = self.servers.remove(router) else {
            return Err(ExperimentError::Node(format!("{router} has no server")));
        };
        drop(server);
        // Kill all processes in the namespace: they are the server's sessions and their children. A
        // process that has ended meanwhile is no error; a process that is left is one.
        let name = namespace(router);
        let line = format!(
            "of='ip netns pids {name}'; kill -9 $($of) 2>/dev/null; sleep 0.05; \
             test -z \"$($of)\""
        );
        Host::default().run(&Command::new("sh", ["-c", &line]))?;
        Ok(number)
    }

    /// Simulates a reboot of a router: ends its sessions and removes everything that the broker put
    /// there. Returns when its server is running again.
    pub(super) fn reboot(&mut self, router: &str) -> Result {
        let number = self.stop_server(router)?;
        self.run(router, Command::new("sh", ["-c", LOSE_ALL]))?;
        self.start_server(router, number)
    }
}

/// Returns the broker's file for links of a rate, comparisons at the interval `check`, and slow
/// routers, as on an emulated machine.
fn patient(rate: &str, check: &str) -> String {
    let patience = format!("router_patience = \"30s\"\ncheck = \"{check}\"");
    CONFIGURATION.replace("100Mbit", rate).replace("router_patience = \"1s\"", &patience)
}

/// Returns the lines that put a VLAN in the place of a device: the name, the addresses.
fn vlan_lines(end: &End) -> Vec<String> {
    let (vlan, device) = (&end.device, format!("{}-trunk", end.device));
    let mut lines = vec![
        format!("link set {vlan} down"),
        format!("link set {vlan} name {device}"),
        format!("addr flush dev {device}"),
        format!("link set {device} up"),
        format!("link add link {device} name {vlan} type vlan id {VLAN}"),
        format!("link set {vlan} up"),
    ];
    let put = |address| format!("addr replace {address} dev {vlan} nodad");
    lines.extend(end.addresses.iter().map(put));
    lines
}

/// Makes a certificate of an address, signed by itself, and has it and its key written.
pub(super) fn make_certificate(address: &str, write: impl Fn(&str, &str) -> Result) -> Result {
    let own = rcgen::generate_simple_self_signed([address.to_owned()])
        .map_err(|error| ExperimentError::Node(format!("certificate: {error}")))?;
    write("cert.pem", &own.cert.pem())?;
    write("key.pem", &own.signing_key.serialize_pem())
}

/// Builds the lab, runs a broker in it until a signal arrives, and takes everything down. Prints
/// how to send requests to the broker.
///
/// # Errors
/// The lab cannot be built, or the broker does not start.
pub fn hold(say: impl Fn(&str)) -> Result {
    let lab = BrokerLab::up()?;
    let broker = lab.broker()?;
    let folder = lab.place.folder().display();
    say(&format!(
        "The broker runs; ^C ends it and takes everything down. In another shell, as root:\n\n\
         ip netns exec {NAME}-{MANAGEMENT} sh    # end nodes: {NAME}-bh1, {NAME}-bh2 …\n\
         cd {folder}\n\
         export WEIR_BROKER={BROKER} WEIR_BROKER_CA=cert.pem WEIR_TOKEN=$(cat token)\n\n\
         The page is at {BROKER}/#token={token}, for a browser in that namespace:\n\
         chromium --no-sandbox --ignore-certificate-errors ADDRESS",
        token = lab.token
    ));
    while clock::sleep(Duration::from_secs(1)).is_ok() {}
    broker.terminate();
    lab.down()
}

/// A child process that is killed when this value is dropped.
pub(super) struct EndedChild(pub(super) Child);

impl Drop for EndedChild {
    fn drop(&mut self) {
        // A child that has already ended is no error.
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Runs a command at a node and returns what it printed.
pub(super) fn run_at(node: &str, command: Command) -> Result<String> {
    Ok(Host::default().run(&command.in_namespace(&namespace(node)))?)
}

/// Returns the address of a node's device.
pub(super) fn device_mac(node: &str, device: &str) -> Result<Mac> {
    let line = format!("ip -j link show dev {device}");
    let links: Vec<Value> = parsed(&run_at(node, Command::line(&line))?)?;
    let mac = links.first().and_then(|link| link["address"].as_str()).unwrap_or_default();
    mac.parse().map_err(ExperimentError::Node)
}

/// Returns the namespace of a node.
pub(super) fn namespace(node: &str) -> String {
    format!("{NAME}-{node}")
}

/// Returns the path of a connection that the broker showed.
pub(super) fn connection_path(connection: &Value) -> String {
    format!("/v1/connections/{}", connection["id"].as_str().unwrap_or_default())
}

/// Reads JSON that a program printed.
pub(super) fn parsed<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text)
        .map_err(|error| ExperimentError::Node(format!("{error}: {text:.200}")))
}

/// The commands that remove from a router everything that the broker put there.
const LOSE_ALL: &str = "nft flush ruleset; ip sr tunsrc set :: 2>/dev/null; \
    ip -6 rule flush protocol 87; ip -6 route flush table all proto 87; \
    for of in $(ls /sys/class/net | grep -E '^w[cd]'); do ip link del $of; done 2>/dev/null; \
    for of in $(tc qdisc show | sed -n 's/^qdisc htb 57: dev \\([^ ]*\\) root.*/\\1/p'); do \
    tc qdisc del dev $of root; done; true";

/// The name of every lab of the table.
pub(super) const NAME: &str = "em";

/// The physical network of both virtual networks.
pub(super) const TOPOLOGY: &str = include_str!("../../../scenarios/em/network.toml");
const CONFIGURATION: &str = include_str!("../../../scenarios/em/broker.toml");

/// The routers of both networks, in the order of their management links.
pub(super) const ROUTERS: [&str; 6] = ["b1", "b2", "b3", "b4", "r1", "r2"];

/// The VLAN of each link in [`BrokerLab::on_vlans`].
const VLAN: u16 = 10;

const PROBE: &str = "ip link add link mg name probe type vlan id 10
ip link del probe
ip link add probe type ip6tnl mode ip6ip6 remote ::2 local ::1
ip link del probe";

pub(super) const MANAGEMENT: &str = "mg";

/// Headers of requests by `curl`.
pub(super) const JSON_KIND: &str = "Content-Type: application/json";
pub(super) const XML_KIND: &str = "Content-Type: application/xml";

const BROKER_ADDRESS: &str = "fd1f:1::1";
pub(super) const BROKER: &str = "https://[fd1f:1::1]:8443";

const SSHD: &str = "/usr/sbin/sshd";

/// A broker waits for the lease of a killed one, then opens a shell on each router, which takes
/// seconds where a processor is emulated.
const STARTED_WITHIN: Duration = Duration::from_secs(90);

const POLL: Duration = Duration::from_millis(10);
