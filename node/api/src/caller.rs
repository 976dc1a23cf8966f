// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The caller of a request: its identity, its role, and what it may see and change.

use std::net::IpAddr;

use axum::http::{HeaderMap, Method, header};
use ring::digest;
use weir_node::control::{Refusal, RefusalKind};
use weir_policy::{
    Digest, Direction, Edit, ItemName, KeyPath, Policy, Problem, ProblemPlace, Role as TokenRole,
    SchedulerKind, Slice, SliceId, Vif,
};

use crate::error::{ErrorCode, Rejection};

/// Origin of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionOrigin {
    /// The Unix socket, from a process of this user.
    Local {
        /// The user, as the kernel reports it.
        uid: u32,
    },
    /// TCP.
    Remote(IpAddr),
}

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Its name in the record of changes.
    pub(crate) who: String,
    /// Its role.
    pub(crate) role: CallerRole,
    /// Digest of its token; `None` for root on the Unix socket.
    pub(crate) token: Option<Digest>,
}

/// Role of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallerRole {
    /// Sees and changes everything.
    Administrator,
    /// Sees everything but packets, the policy file and the advice on a class, and changes nothing.
    Reader,
    /// Sees and changes the vifs of one slice.
    Tenant {
        /// Its name.
        slice: String,
    },
}

/// Result of the authentication of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Authentication {
    /// The caller is known.
    Known(Caller),
    /// The request has no token.
    NoToken,
    /// The token is unknown.
    WrongToken,
}

impl ConnectionOrigin {
    /// Returns the name of the origin.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Local { uid } => format!("uid {uid}"),
            Self::Remote(address) => address.to_string(),
        }
    }
}

impl Caller {
    /// Authenticates a request by its origin and its headers.
    pub(crate) fn authenticate(
        origin: &ConnectionOrigin,
        headers: &HeaderMap,
        policy: &Policy,
    ) -> Authentication {
        let Some(header) = headers.get(header::AUTHORIZATION) else {
            return match origin {
                ConnectionOrigin::Local { uid: 0 } => {
                    let role = CallerRole::Administrator;
                    Authentication::Known(Self { who: origin.name(), role, token: None })
                }
                _ => Authentication::NoToken,
            };
        };
        let token = header.as_bytes().strip_prefix(b"Bearer ").unwrap_or_default();
        // No constant-time comparison is needed. Tokens are 256 random bits, so the timing of a
        // comparison can reveal a digest at most, and no token follows from its digest.
        Self::with(sha256(token), policy).map_or(Authentication::WrongToken, Authentication::Known)
    }

    /// Returns the caller as the policy in force knows it; `None` if its token was revoked.
    pub(crate) fn reauthenticate(&self, policy: &Policy) -> Option<Self> {
        self.token.map_or_else(|| Some(self.clone()), |token| Self::with(token, policy))
    }

    fn with(digest: Digest, policy: &Policy) -> Option<Self> {
        let token = policy.api.tokens.iter().find(|known| known.sha256 == digest)?;
        let role = match (token.role, &token.slice) {
            (TokenRole::Administrator, _) => CallerRole::Administrator,
            (TokenRole::Reader, _) => CallerRole::Reader,
            (TokenRole::Tenant, slice) => {
                CallerRole::Tenant { slice: slice.clone().unwrap_or_default() }
            }
        };
        Some(Self { who: format!("token {}", token.name), role, token: Some(digest) })
    }

    /// Returns the slice of a tenant; `None` for a caller that sees all slices.
    pub(crate) fn slice(&self) -> Option<&str> {
        match &self.role {
            CallerRole::Administrator | CallerRole::Reader => None,
            CallerRole::Tenant { slice } => Some(slice),
        }
    }

    /// Refuses a caller that is not an administrator.
    pub(crate) fn administrator(&self) -> Result<(), Rejection> {
        let what = match &self.role {
            CallerRole::Administrator => return Ok(()),
            CallerRole::Reader => "is a reader",
            CallerRole::Tenant { .. } => "is a tenant",
        };
        let text = format!("{} {what}; this is for administrators", self.who);
        Err(Rejection::new(ErrorCode::Forbidden, text))
    }

    /// Refuses a reader's request whose method is not one that reads.
    pub(crate) fn may_use(&self, method: &Method) -> Result<(), Rejection> {
        if self.role != CallerRole::Reader || [Method::GET, Method::HEAD].contains(method) {
            return Ok(());
        }
        Err(Rejection::new(ErrorCode::Forbidden, self.changes_nothing()))
    }

    /// Returns the text with which a reader's change is refused.
    fn changes_nothing(&self) -> String {
        format!("{} is a reader, and changes nothing", self.who)
    }

    /// Returns true if the caller may see the vif.
    pub(crate) fn sees(&self, policy: &Policy, vif: &Vif) -> bool {
        self.slice().is_none_or(|slice| policy[vif.slice].name == slice)
    }

    /// Returns true if the caller may see the vif of that name.
    pub(crate) fn sees_vif(&self, policy: &Policy, name: &str) -> bool {
        policy.vifs.iter().any(|vif| vif.name == name && self.sees(policy, vif))
    }

    /// Returns true if the caller may see the packets of the vif of that name.
    pub(crate) fn sees_packets(&self, policy: &Policy, name: &str) -> bool {
        self.role != CallerRole::Reader && self.sees_vif(policy, name)
    }

    /// Returns true if the caller may see the subject of the edit.
    pub(crate) fn sees_edit(&self, policy: &Policy, edit: &Edit) -> bool {
        let place = &edit.place;
        self.slice().is_none() || place.table == "vif" && self.sees_vif(policy, &place.name)
    }

    /// Returns true if the caller may read about a problem of a new policy. A tenant reads only
    /// about its own slice, routers and vifs. It does not read about the promises of a port or of
    /// the node, nor about delays, in which all vifs of a port are summed.
    pub(crate) fn sees_problem(&self, policy: &Policy, problem: &Problem) -> bool {
        let Some(slice) = self.slice() else { return true };
        let ProblemPlace { table, item: Some(ItemName::Name(name)), key } = &problem.place else {
            return false;
        };
        let mut routers = policy.routers.iter().filter(|one| policy[one.slice].name == slice);
        let is_own = match table.as_str() {
            "slice" => name == slice,
            "router" => routers.any(|router| router.name == *name),
            "vif" => self.sees_vif(policy, name),
            _ => false,
        };
        is_own && !key.is_empty() && key != "delay"
    }

    /// Checks that the caller may make a change. An administrator may change everything; a tenant
    /// may change its own vifs, within its slice's grant. A caller whose token was revoked after
    /// its request arrived may change nothing.
    pub(crate) fn may(&self, old: &Policy, new: &Policy, edits: &[Edit]) -> Result<(), Refusal> {
        let caller = self.known(old)?;
        caller.owns_places(old, edits)?;
        let CallerRole::Tenant { slice } = caller.role else { return Ok(()) };
        let found = new.slices().find(|(_, one)| one.name == slice);
        found.map_or(Ok(()), |(id, slice)| within_grant(id, slice, old, new))
    }

    /// Returns the caller as the policy in force knows it, or refuses a caller whose token was
    /// revoked.
    fn known(&self, policy: &Policy) -> Result<Self, Refusal> {
        let text = || format!("{} is not known any more", self.who);
        self.reauthenticate(policy).ok_or_else(|| Refusal::new(RefusalKind::Forbidden, text()))
    }

    /// Checks that the caller may undo a change of its own. Nobody has changed its keys since, so
    /// the undo restores values that were granted before. Only the ownership of the keys is
    /// checked.
    pub(crate) fn owns(&self, old: &Policy, edits: &[Edit]) -> Result<(), Refusal> {
        self.known(old)?.owns_places(old, edits)
    }

    /// Checks that the caller owns the keys of the edits. `self` is a caller that [`Self::known`]
    /// returned.
    fn owns_places(&self, old: &Policy, edits: &[Edit]) -> Result<(), Refusal> {
        if self.role == CallerRole::Reader {
            return Err(Refusal::new(RefusalKind::Forbidden, self.changes_nothing()));
        }
        if self.slice().is_none() {
            return Ok(());
        }
        for edit in edits {
            let place = &edit.place;
            if !self.sees_edit(old, edit) {
                let text = format!("there is no {} {:?}", place.table, place.name);
                return Err(Refusal::new(RefusalKind::NotFound, text).about([place.clone()]));
            }
            if !TENANTS_KEYS.contains(&place.key.as_str()) {
                let text = format!("{place} is not a tenant's to change");
                return Err(Refusal::new(RefusalKind::Forbidden, text).about([place.clone()]));
            }
        }
        Ok(())
    }
}

/// Returns the digest of a token, as the policy holds it.
pub(crate) fn sha256(token: &[u8]) -> Digest {
    let mut bytes = [0; 32];
    let digest = digest::digest(&digest::SHA256, token);
    bytes.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
    Digest(bytes)
}

/// Checks that a slice's vifs stay within its grant. A slice grants its own guarantee on each port;
/// without one it grants the sum that its vifs had before. It grants its own limit to each vif;
/// without one, the limit that the vif had. Where slices share a port by the priorities of their
/// vifs, it grants the priority that the vif had.
fn within_grant(id: SliceId, slice: &Slice, old: &Policy, new: &Policy) -> Result<(), Refusal> {
    for direction in Direction::ALL {
        let grant = slice.share(direction);
        let beyond = |what: &str, asked: String, bound: String, key: KeyPath| {
            let (name, direction) = (&slice.name, direction.name());
            let text =
                format!("slice \"{name}\".{direction}: {what} {asked}; at most {bound} is granted");
            Err(Refusal::new(RefusalKind::Forbidden, text).about([key]))
        };
        let key = |key: &str| format!("{}.{key}", direction.name());
        for (port, named) in new.ports() {
            let sum = |policy: &Policy| -> u64 {
                let own = policy.vifs.iter().filter(|vif| vif.slice == id && vif.port == port);
                own.map(|vif| vif.share(direction).min_rate.as_bps()).sum()
            };
            let granted = grant.min_rate.as_bps().max(sum(old));
            if sum(new) > granted {
                let on = format!("min_rate on port \"{}\" would be", named.name);
                let [asked, bound] =
                    [sum(new), granted].map(|bps| weir_units::BitRate::from_bps(bps).to_string());
                let key = KeyPath::slice(&slice.name, &key("min_rate"));
                return beyond(&on, asked, bound, key);
            }
        }
        let sum = |policy: &Policy| -> u64 {
            let own = policy.vifs.iter().filter(|vif| vif.slice == id);
            own.map(|vif| vif.share(direction).min_pps.as_pps()).sum()
        };
        let granted = grant.min_pps.as_pps().max(sum(old));
        if sum(new) > granted {
            let [asked, bound] =
                [sum(new), granted].map(|pps| weir_units::PacketRate::from_pps(pps).to_string());
            let key = KeyPath::slice(&slice.name, &key("min_pps"));
            return beyond("min_pps would be", asked, bound, key);
        }
        for (before, after) in old.vifs.iter().zip(&new.vifs).filter(|(vif, _)| vif.slice == id) {
            let [was, is] = [before, after].map(|vif| vif.share(direction));
            // Other schedulers have no slices: a vif's priority there competes with all vifs'.
            let among_all = new[after.port].scheduler != SchedulerKind::Hfsc;
            if among_all && is.priority > was.priority {
                let what = format!(
                    "priority of vif \"{}\" on a port whose scheduler is not hfsc would be",
                    after.name
                );
                let bound = was.priority.to_string();
                let key = KeyPath::vif(&after.name, &key("priority"));
                return beyond(&what, is.priority.to_string(), bound, key);
            }
            let text = |limit: Option<String>| limit.unwrap_or_else(|| "no limit".to_owned());
            // A vif without a limit of its own has the slice's.
            let (is_rate, bound) = (is.rate.or(grant.rate), grant.rate.or(was.rate));
            if bound.is_some_and(|bound| is_rate.is_none_or(|rate| rate > bound)) {
                let what = format!("rate of vif \"{}\" would be", after.name);
                let [asked, bound] = [is_rate, bound].map(|rate| text(rate.map(|r| r.to_string())));
                return beyond(&what, asked, bound, KeyPath::vif(&after.name, &key("rate")));
            }
            let (is_pps, bound) = (is.max_pps.or(grant.max_pps), grant.max_pps.or(was.max_pps));
            if bound.is_some_and(|bound| is_pps.is_none_or(|pps| pps > bound)) {
                let what = format!("max_pps of vif \"{}\" would be", after.name);
                let [asked, bound] = [is_pps, bound].map(|pps| text(pps.map(|p| p.to_string())));
                return beyond(&what, asked, bound, KeyPath::vif(&after.name, &key("max_pps")));
            }
        }
    }
    Ok(())
}

/// Keys that a tenant may change, because they affect its own share alone. Bursts, delays and
/// bounds of queues are not among them, since they use room of the port and of the pool.
const TENANTS_KEYS: &[&str] = &[
    "send.priority",
    "send.min_rate",
    "send.rate",
    "send.min_pps",
    "send.max_pps",
    "send.queue.aqm",
    "send.queue.target",
    "send.queue.interval",
    "send.queue.ecn",
    "send.queue.l4s",
    "receive.priority",
    "receive.min_rate",
    "receive.rate",
    "receive.min_pps",
    "receive.max_pps",
    "receive.queue.aqm",
    "receive.queue.target",
    "receive.queue.interval",
    "receive.queue.ecn",
    "receive.queue.l4s",
];

#[cfg(test)]
mod tests {
    use super::*;
    use weir_policy::{Draft, KeyPath};

    fn tenant() -> Caller {
        let role = CallerRole::Tenant { slice: "gold".to_owned() };
        Caller { who: "token shop".to_owned(), role, token: Some(sha256(b"x")) }
    }

    /// Returns the tenant's token, as the policy has it.
    fn token() -> weir_policy::Token {
        let (slice, sha256) = (Some("gold".to_owned()), sha256(b"x"));
        weir_policy::Token { name: "shop".into(), role: TokenRole::Tenant, slice, sha256 }
    }

    /// Returns the text of the refusal that the tenant gets for these edits; empty if they are
    /// allowed.
    fn asked(edits: &[(&str, &str, Option<&str>)]) -> String {
        let edit = |(vif, key, value): &(&str, &str, Option<&str>)| {
            let place = KeyPath::vif(vif, key);
            value.map_or_else(|| Edit::unset(place.clone()), |v| Edit::set(place.clone(), v))
        };
        asked_of(TEXT, edits.iter().map(edit))
    }

    fn asked_of(text: &str, edits: impl IntoIterator<Item = Edit>) -> String {
        let (file, mut old) = Draft::parse(text).unwrap();
        old.api.tokens.push(token());
        let mut live = file.clone();
        let edits: Vec<Edit> = edits.into_iter().map(|edit| live.apply(&edit).unwrap()).collect();
        let new = live.policy().unwrap();
        tenant().may(&old, &new, &edits).map_or_else(|refusal| refusal.message, |()| String::new())
    }

    #[test]
    fn a_tenant_moves_within_its_grant_and_not_beyond() {
        assert_eq!(asked(&[("a", "send.min_rate", Some("30Mbit"))]), "");
        assert_eq!(asked(&[("a", "send.rate", Some("50Mbit"))]), "");
        // Without a limit of its own a vif has the slice's.
        assert_eq!(asked(&[("a", "send.rate", None)]), "");
        assert_eq!(
            asked(&[("a", "send.rate", Some("51Mbit"))]),
            "slice \"gold\".send: rate of vif \"a\" would be 51Mbit; at most 50Mbit is granted"
        );
        // The slice names no guarantee here, so it grants the sum that its vifs have.
        assert_eq!(
            asked(&[("a", "receive.min_rate", Some("1Mbit"))]),
            "slice \"gold\".receive: min_rate on port \"up0\" would be 1Mbit; at most 0bit is \
             granted"
        );
        assert!(
            asked(&[("a", "receive.max_pps", None)])
                .contains("no limit; at most 100pps is granted")
        );
        assert!(asked(&[("a", "send.burst", Some("1MB"))]).contains("not a tenant's"));
    }

    #[test]
    fn a_tenants_priority_is_against_its_own_alone() {
        let priority = |value: i64| [Edit::set(KeyPath::vif("a", "send.priority"), value)];
        assert_eq!(asked_of(TEXT, priority(9)), "");
        for kind in ["strict", "wrr", "drr", "wfq"] {
            let flat = format!(
                "version = 1\n[[port]]\nname = \"up0\"\nrate = \"1Gbit\"\nscheduler = \"{kind}\"\n\
                 [[slice]]\nname = \"gold\"\n[[slice]]\nname = \"lead\"\n\
                 [[vif]]\nname = \"a\"\nslice = \"gold\"\nsend = {{ priority = 5 }}\n\
                 [[vif]]\nname = \"z\"\nslice = \"lead\"\n"
            );
            let heard = asked_of(&flat, priority(9));
            let refused = "slice \"gold\".send: priority of vif \"a\" on a port whose scheduler \
                           is not hfsc would be 9; at most 5 is granted";
            assert_eq!(heard, refused, "{kind}");
            assert_eq!(asked_of(&flat, priority(4)), "", "{kind}");
        }
    }

    /// The port is full. A tenant reads only about its own part, whichever bound the change breaks.
    #[test]
    fn a_tenant_reads_problems_with_its_own_alone() {
        let policy = weir_policy::parse(TEXT).unwrap();
        let heard = |caller: &Caller, edits: &[(&str, &str, &str)]| -> Vec<String> {
            let (mut live, _) = Draft::parse(TEXT).unwrap();
            for (vif, key, value) in edits {
                live.apply(&Edit::set(KeyPath::vif(vif, key), *value)).unwrap();
            }
            let problems = live.policy().unwrap_err();
            let seen = problems.list().iter().filter(|one| caller.sees_problem(&policy, one));
            seen.map(|problem| problem.place.to_string()).collect()
        };
        let root = Caller { who: "uid 0".to_owned(), role: CallerRole::Administrator, token: None };
        let full = [("a", "send.min_rate", "40Mbit"), ("z", "send.min_rate", "980Mbit")];
        assert_eq!(heard(&root, &full), ["port \"up0\".rate", "slice \"gold\".send.min_rate"]);
        assert_eq!(heard(&tenant(), &full), ["slice \"gold\".send.min_rate"]);
        let wrong = [("a", "send.rate", "much"), ("z", "send.rate", "more")];
        assert_eq!(heard(&tenant(), &wrong), ["vif \"a\".send.rate"]);
        let late = [("z", "send.min_rate", "1Mbit"), ("z", "delay", "1us")];
        assert_eq!(heard(&root, &late), ["vif \"z\".delay"]);
        let late = [("a", "send.min_rate", "20Mbit"), ("a", "delay", "1us")];
        assert_eq!(heard(&root, &late), ["vif \"a\".delay"]);
        assert!(heard(&tenant(), &late).is_empty());
    }

    #[test]
    fn a_tenant_cannot_see_another_tenants_vif() {
        assert_eq!(asked(&[("z", "send.rate", Some("1Mbit"))]), "there is no vif \"z\"");
        let policy = weir_policy::parse(TEXT).unwrap();
        assert!(tenant().sees_vif(&policy, "a") && !tenant().sees_vif(&policy, "z"));
    }

    #[test]
    fn only_root_needs_no_token_and_only_a_known_token_is_one() {
        let mut policy = weir_policy::parse(TEXT).unwrap();
        let [root, user] = [0, 1000].map(|uid| ConnectionOrigin::Local { uid });
        let mut headers = HeaderMap::new();
        assert!(matches!(Caller::authenticate(&root, &headers, &policy), Authentication::Known(_)));
        assert_eq!(Caller::authenticate(&user, &headers, &policy), Authentication::NoToken);
        let remote = ConnectionOrigin::Remote("127.0.0.1".parse().unwrap());
        assert_eq!(Caller::authenticate(&remote, &headers, &policy), Authentication::NoToken);
        headers.insert(header::AUTHORIZATION, "Bearer x".parse().unwrap());
        assert_eq!(Caller::authenticate(&root, &headers, &policy), Authentication::WrongToken);
        policy.api.tokens.push(token());
        // Root with a tenant's token is that tenant.
        assert_eq!(Caller::authenticate(&root, &headers, &policy), Authentication::Known(tenant()));
        assert_eq!(tenant().reauthenticate(&policy), Some(tenant()));
        policy.api.tokens.clear();
        assert_eq!(tenant().reauthenticate(&policy), None, "it was revoked");
        // The request arrived before the token was revoked.
        let refused = tenant().may(&policy, &policy, &[]).unwrap_err();
        assert_eq!(refused.message, "token shop is not known any more");
    }

    const TEXT: &str = r#"
version = 1
[[port]]
name = "up0"
rate = "1Gbit"
[[slice]]
name = "gold"
send = { min_rate = "30Mbit", rate = "50Mbit" }
[[slice]]
name = "lead"
[[vif]]
name = "a"
slice = "gold"
send = { min_rate = "20Mbit", rate = "40Mbit" }
receive = { max_pps = "100pps" }
[[vif]]
name = "b"
slice = "gold"
send = { rate = "40Mbit" }
[[vif]]
name = "z"
slice = "lead"
"#;
}
