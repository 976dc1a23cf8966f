// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One kept shell on a node, over SSH.
//!
//! A new SSH connection takes tens of milliseconds, a login shell may read files first. Here one
//! channel runs `sh`, which reads scripts from its input; a mark that the script itself does not
//! contain tells where the answer to each ends.
//!
//! The host's key is pinned by the configuration. The node keeps the broker's fencing number in a
//! file: a script of an older broker is refused there, unless it has begun. What a node says of
//! that concerns this node alone: whoever is root there can write the file. Only the store decides
//! which broker leads.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use russh::keys::{PrivateKey, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate};
use russh::{Channel, ChannelMsg, client};

use crate::links::LinkWatch;
use crate::physical::SshServer;

/// An open shell.
pub(crate) struct NodeShell {
    channel: Channel<client::Msg>,
    session: client::Handle<PinnedKey>,
    exchanges: u64,
    fence: String,
    /// The time that an exchange may take.
    patience: Duration,
}

/// Key and identity with which shells are opened.
#[derive(Clone)]
pub(crate) struct ShellAccess {
    pub(crate) key: Arc<PrivateKey>,
    /// Identity of the broker's store, which names the file of the fencing number: another store
    /// counts anew.
    pub(crate) store: String,
    pub(crate) fence: u64,
    /// The time that a router may take to answer before connections leave it.
    pub(crate) patience: Duration,
}

/// Why an exchange failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ShellError {
    /// No connection, or it broke.
    #[error("{0}")]
    Broken(String),
    /// The node does not let this broker configure it.
    #[error("{0}")]
    Fenced(String),
}

struct PinnedKey(PublicKey);

impl client::Handler for PinnedKey {
    type Error = russh::Error;

    async fn check_server_key(
        &mut self,
        key: &PublicKeyOrCertificate,
    ) -> Result<bool, Self::Error> {
        Ok(match key {
            PublicKeyOrCertificate::PublicKey { key, .. } => key.key_data() == self.0.key_data(),
            PublicKeyOrCertificate::Certificate(_) => false,
        })
    }
}

impl NodeShell {
    /// Opens a shell on a router or host, and takes it for this fence.
    pub(crate) async fn open(server: &SshServer, access: &ShellAccess) -> Result<Self, ShellError> {
        let patience = access.patience.max(OPEN_PATIENCE);
        let opened = tokio::time::timeout(patience, Self::connect(server, access)).await;
        let mut shell = opened.map_err(|_| {
            ShellError::Broken(format!("no shell within {} s", patience.as_secs()))
        })??;
        let (store, fence) = (&access.store, access.fence);
        let file = format!("/run/weir/fence-{store}-{}", server.name);
        shell.fence = format!("read weir_fence <{file} && [ \"$weir_fence\" = {fence} ]");
        let take = format!(
            "mkdir -p /run/weir; weir_fence=0; [ ! -e {file} ] || read weir_fence <{file}\n\
             if [ \"$weir_fence\" -le {fence} ]; then echo {fence} >{file}.new && \
             mv {file}.new {file}; fi\n\
             ls -t /run/weir/fence-????????????????-{} | tail -n +{} | xargs rm -f\n\
             {} || echo \"'$weir_fence'\"",
            server.name,
            FENCES_MAX + 1,
            shell.fence
        );
        let there = shell.exchange(&take, ANSWER_BYTES).await?;
        let Some(there) = there.trim().strip_prefix('\'') else { return Ok(shell) };
        let there = there.trim_end_matches('\'');
        let is_later = there.parse().is_ok_and(|number: u64| number > fence);
        let why = if is_later { "a broker with a later lease" } else { "it cannot be written" };
        let text = format!("{file} has \"{there:.40}\", not {fence}: {why}");
        Err(ShellError::Fenced(text))
    }

    async fn connect(server: &SshServer, access: &ShellAccess) -> Result<Self, ShellError> {
        let pinned = PublicKey::from_openssh(&server.host_key)
            .map_err(|error| ShellError::Broken(format!("host_key: {error}")))?;
        let config = client::Config {
            nodelay: true,
            keepalive_interval: Some(KEEPALIVE),
            ..Default::default()
        };
        let mut session =
            client::connect(Arc::new(config), server.address, PinnedKey(pinned)).await?;
        let key = PrivateKeyWithHashAlg::new(Arc::clone(&access.key), None);
        if !session.authenticate_publickey(server.user.clone(), key).await?.success() {
            return Err(ShellError::Broken(format!("{}: key not accepted", server.user)));
        }
        let channel = session.channel_open_session().await?;
        channel.exec(false, "exec sh").await?;
        let patience = access.patience.max(ANSWER_PATIENCE);
        Ok(Self { channel, session, exchanges: 0, fence: "true".to_owned(), patience })
    }

    /// Runs a command beside the shell, for as long as the shell is open, and tells `event` of
    /// lines with one of the words.
    pub(crate) async fn watch(
        &self,
        watch: LinkWatch,
        event: Arc<Notify>,
    ) -> Result<(), ShellError> {
        let mut channel = self.session.channel_open_session().await?;
        channel.exec(false, watch.command).await?;
        // The channel ends with the session.
        tokio::spawn(async move {
            let mut line = Vec::new();
            while let Some(message) = channel.wait().await {
                let ChannelMsg::Data { data } = message else { continue };
                for byte in &data[..] {
                    if *byte != b'\n' && line.len() < LINE_BYTES_MAX {
                        line.push(*byte);
                        continue;
                    }
                    let text = String::from_utf8_lossy(&line);
                    if watch.words.iter().any(|word| text.contains(word)) {
                        event.notify_one();
                    }
                    line.clear();
                }
            }
        });
        Ok(())
    }

    /// Runs a script and returns what it said, unless another broker has taken the node. The length
    /// of the answer is bounded, by room for this number of the broker's items, since whoever is
    /// root at a router decides what it says.
    pub(crate) async fn run(&mut self, script: &str, items: usize) -> Result<String, ShellError> {
        let guarded = format!("if {}; then\n{script}\nelse echo {FENCED}; fi", self.fence);
        let most = ANSWER_BYTES.saturating_add(items.saturating_mul(ITEM_BYTES));
        let said = self.exchange(&guarded, most).await?;
        if said.trim() == FENCED {
            // The next attempt to open it tells why.
            return Err(ShellError::Broken("it has another fencing number".to_owned()));
        }
        Ok(said)
    }

    async fn exchange(&mut self, script: &str, most: usize) -> Result<String, ShellError> {
        let exchanged = tokio::time::timeout(self.patience, self.ask(script, most)).await;
        exchanged.unwrap_or_else(|_| {
            let seconds = self.patience.as_secs();
            Err(ShellError::Broken(format!("no answer within {seconds} s")))
        })
    }

    async fn ask(&mut self, script: &str, most: usize) -> Result<String, ShellError> {
        self.exchanges += 1;
        let number = self.exchanges;
        // The shell joins the two halves, so an echo of the script is not taken for the mark.
        let text = format!("{script}\necho \"WEIR\"\"-DONE-{number}\"\n");
        let mark = format!("WEIR-DONE-{number}\n");
        self.channel.data(text.as_bytes()).await?;
        let mut said = Vec::new();
        loop {
            match self.channel.wait().await {
                Some(ChannelMsg::Data { data }) => said.extend_from_slice(&data),
                None | Some(ChannelMsg::Eof | ChannelMsg::Close) => {
                    return Err(ShellError::Broken("the shell ended".to_owned()));
                }
                Some(_) => {}
            }
            if said.len() > most {
                return Err(ShellError::Broken(format!("an answer above {most} bytes")));
            }
            if said.ends_with(mark.as_bytes()) {
                said.truncate(said.len() - mark.len());
                return Ok(String::from_utf8_lossy(&said).into_owned());
            }
        }
    }
}

impl From<russh::Error> for ShellError {
    fn from(error: russh::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

/// Fencing numbers that a router keeps, those of the stores that used it last. Only a store whose
/// broker is no longer there can be forgotten: two at one router would undo each other's work.
const FENCES_MAX: usize = 8;

const FENCED: &str = "WEIR-FENCED";

/// The least times for a shell to open and for an exchange.
const OPEN_PATIENCE: Duration = Duration::from_secs(5);
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
const KEEPALIVE: Duration = Duration::from_secs(5);

/// Bytes of a line that tells of a change.
const LINE_BYTES_MAX: usize = 4 << 10;

/// Bytes of an answer beside the items that are wanted or known: rules and queueing disciplines of
/// others, and 4000 tunnels that an earlier broker left.
const ANSWER_BYTES: usize = 16 << 20;

/// Bytes of an item in an answer. A tunnel takes 1.5 kB, one of `ip6tnl` 3.5 kB.
const ITEM_BYTES: usize = 8 << 10;
