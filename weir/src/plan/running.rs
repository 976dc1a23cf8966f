// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The running nodes of a plan, as clients of their interfaces.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use weir_api_types::change::{ChangeSet, ChangeView, UndoRequest};
use weir_api_types::error::ErrorCode;
use weir_api_types::policy::{CallerView, RoleView};
use weir_client::{Client, ClientError, Method};
use weir_plan::{NodePlan, PlanRequest, PlannedNode};
use weir_platform::failure::Failure;

use super::view::node_name;
use crate::node::TOKEN;

/// A running node of a plan.
pub(super) struct RunningNode {
    /// Its name in the plan.
    pub(super) name: String,
    pub(super) address: NodeAddress,
    client: Client,
}

/// The interface of a running node: files by their whole paths. The token itself is not in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeAddress {
    /// `https://HOST:PORT`, or the path of its Unix socket.
    api: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token_file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ca: Option<String>,
}

/// Returns the running nodes of a plan, in its order. Paths in the plan count from the folder of
/// its file.
pub(super) fn nodes(
    request: &PlanRequest,
    plan: &NodePlan,
    file: &Path,
) -> Result<Vec<RunningNode>, Failure> {
    let folder = std::path::absolute(file)?;
    let folder = folder.parent().unwrap_or_else(|| Path::new("/"));
    let whole = |path: &String| folder.join(path).display().to_string();
    let mut nodes = Vec::with_capacity(plan.nodes.len());
    let (mut without, mut owners) = (Vec::new(), BTreeMap::new());
    for planned in &plan.nodes {
        let name = node_name(request, planned);
        let Some(api) = &request.kinds[planned.kind].api else {
            without.push(name);
            continue;
        };
        let is_remote = api.address.starts_with("https://");
        let address = NodeAddress {
            api: if is_remote { api.address.clone() } else { whole(&api.address) },
            token_file: api.token_file.as_ref().map(whole),
            ca: api.ca.as_ref().map(whole),
        };
        if let Some(other) = owners.insert(address.api.clone(), name.clone()) {
            let api = &api.address;
            return Err(format!("nodes {other} and {name} have the same api, {api}").into());
        }
        nodes.push(RunningNode::new(name, address)?);
    }
    if without.is_empty() {
        return Ok(nodes);
    }
    without.truncate(NAMES_MAX);
    let text = "has no api: give each running node a [[node]] of its own, with its address";
    Err(format!("node {}: {text}", without.join(", ")).into())
}

impl RunningNode {
    /// Makes the client of a node; it does not connect yet.
    pub(super) fn new(name: String, address: NodeAddress) -> Result<Self, Failure> {
        let named = |error: std::io::Error| format!("node {name}: {error}");
        let NodeAddress { api, token_file, ca } = &address;
        let client = Client::at(api, ca.as_ref().map(Path::new)).map_err(named)?;
        let token = match token_file {
            Some(file) => {
                let read = fs::read_to_string(file);
                Some(read.map_err(|error| format!("node {name}: {file}: {error}"))?)
            }
            None => std::env::var(TOKEN).ok(),
        };
        let client = match token.as_deref().map(str::trim) {
            Some(token) if !token.is_empty() => client.with_token(token),
            _ => client,
        };
        Ok(Self { name, address, client })
    }

    /// Reads from the node; a failure names it.
    pub(super) fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        Ok(self.client.get(path).map_err(|error| self.named(&error))?)
    }

    /// Reads from the node; `None` if it has no time to answer.
    pub(super) fn get_if_idle<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<Option<T>, Failure> {
        match self.client.get(path) {
            Ok(found) => Ok(Some(found)),
            Err(ClientError::Refused(refusal)) if refusal.code == ErrorCode::Busy => Ok(None),
            Err(error) => Err(self.named(&error).into()),
        }
    }

    /// Refuses a caller that the node takes for a tenant, which would see and change only a part.
    pub(super) fn administrator(&self) -> Result<(), Failure> {
        let caller: CallerView = self.get("/v1/caller")?;
        if caller.role == RoleView::Administrator {
            return Ok(());
        }
        let (name, who) = (&self.name, caller.who);
        Err(format!(
            "node {name}: {who} is a tenant there, and a plan needs an administrator: give \
             token_file of its [[node]], or {TOKEN}, an administrator's token"
        )
        .into())
    }

    /// Returns the change that `set` would be, as part of an apply.
    pub(super) fn foresee(&self, set: &ChangeSet, apply: &str) -> Result<ChangeView, ClientError> {
        let path = format!("/v1/changes?dry_run=true&apply={apply}");
        self.client.ask(Method::POST, &path, Some(set))
    }

    /// Makes `set` the change with this number, as part of an apply.
    pub(super) fn make(
        &self,
        set: &ChangeSet,
        number: u64,
        apply: &str,
    ) -> Result<ChangeView, ClientError> {
        let path = format!("/v1/changes?number={number}&apply={apply}");
        self.client.ask(Method::POST, &path, Some(set))
    }

    /// Makes a change without edits of this number, so that no other request gets it.
    pub(super) fn use_up(&self, number: u64, apply: &str) -> Result<ChangeView, ClientError> {
        self.make(&ChangeSet::default(), number, apply)
    }

    /// Takes a change back.
    pub(super) fn undo(&self, number: u64) -> Result<ChangeView, ClientError> {
        self.client.ask(Method::POST, "/v1/undo", Some(&UndoRequest { id: Some(number) }))
    }

    /// Returns the changes on record.
    pub(super) fn changes(&self) -> Result<Vec<ChangeView>, ClientError> {
        self.client.get("/v1/changes")
    }

    /// Returns a failure of this node, with its name.
    pub(super) fn named(&self, error: &ClientError) -> String {
        format!("node {}: {error}", self.name)
    }
}

/// Pairs planned nodes with running ones.
pub(super) fn pairs<'p>(
    plan: &'p NodePlan,
    nodes: &'p [RunningNode],
) -> impl Iterator<Item = (&'p PlannedNode, &'p RunningNode)> {
    debug_assert_eq!(plan.nodes.len(), nodes.len(), "each planned node runs");
    plan.nodes.iter().zip(nodes)
}

/// Names in an error.
const NAMES_MAX: usize = 20;
