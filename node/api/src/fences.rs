// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fencing numbers: if several processes do one work in turn, only the one that began last may
//! continue.
//!
//! Brokers of one store take turns by a lease. A broker that has lost the lease may not know it
//! yet, and its request may come late. So each of its requests has a header, `weir-fence: WORK
//! NUMBER`. A number smaller than an earlier one for the same work and caller is refused. Numbers
//! are forgotten when the node ends.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use axum::http::HeaderMap;

use crate::caller::Caller;
use crate::error::{ErrorCode, Rejection};

/// The greatest number of each work, for the [`WORKS_MAX`] works that were used last.
#[derive(Debug, Default)]
pub(crate) struct Fences(Mutex<VecDeque<(String, u64)>>);

impl Fences {
    /// Refuses a request whose fencing number was overtaken, or is sent by a caller that is no
    /// administrator. A request without a number passes.
    pub(crate) fn admit(&self, caller: &Caller, headers: &HeaderMap) -> Result<(), Rejection> {
        let Some(value) = headers.get(HEADER) else { return Ok(()) };
        caller.administrator()?;
        let Some((work, number)) = value.to_str().ok().and_then(read) else {
            let text = format!(
                "{HEADER}: {value:?} is not a work of 1 to {WORK_MAX} visible characters, a space \
                 and a number"
            );
            return Err(Rejection::new(ErrorCode::Malformed, text));
        };
        let work = format!("{}/{work}", caller.who);
        // No step under the lock can panic and leave the list half changed.
        let mut works = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = works.iter().position(|(known, _)| *known == work);
        let greatest = place.and_then(|place| works.remove(place)).map_or(0, |(_, most)| most);
        works.push_back((work, number.max(greatest)));
        if works.len() > WORKS_MAX {
            works.pop_front();
        }
        if number < greatest {
            let text = format!("{HEADER}: {number} was overtaken by {greatest}");
            return Err(Rejection::new(ErrorCode::Conflict, text));
        }
        Ok(())
    }
}

fn read(value: &str) -> Option<(&str, u64)> {
    let (work, number) = value.split_once(' ')?;
    let is_work =
        (1..=WORK_MAX).contains(&work.len()) && work.bytes().all(|b| b.is_ascii_graphic());
    number.parse().ok().filter(|_| is_work).map(|number| (work, number))
}

/// The header of a request.
const HEADER: &str = "weir-fence";
/// The most characters of a work.
const WORK_MAX: usize = 64;
/// The most works whose numbers are kept.
const WORKS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::CallerRole;

    fn asked(fences: &Fences, who: &str, role: CallerRole, value: &str) -> Result<(), ErrorCode> {
        let caller = Caller { who: who.to_owned(), role, token: None };
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, value.parse().unwrap());
        fences.admit(&caller, &headers).map_err(|refusal| refusal.code)
    }

    /// Goal: an overtaken number is refused, for this work of this caller alone; the works that
    /// were used last are kept.
    #[test]
    fn who_was_overtaken_is_refused() {
        let fences = Fences::default();
        let ask = |who: &str, value: &str| asked(&fences, who, CallerRole::Administrator, value);
        for (value, outcome) in [
            ("a 7", Ok(())),
            ("a 7", Ok(())),
            ("a 6", Err(ErrorCode::Conflict)),
            ("b 1", Ok(())),
            ("a 8", Ok(())),
            ("a 7", Err(ErrorCode::Conflict)),
            ("a", Err(ErrorCode::Malformed)),
            (" 7", Err(ErrorCode::Malformed)),
            ("a -7", Err(ErrorCode::Malformed)),
        ] {
            assert_eq!(ask("broker", value), outcome, "{value}");
        }
        assert_eq!(ask("another", "a 1"), Ok(()));
        let tenant = CallerRole::Tenant { slice: "gold".to_owned() };
        assert_eq!(asked(&fences, "gold", tenant, "a 9"), Err(ErrorCode::Forbidden));
        for work in 0..WORKS_MAX {
            assert_eq!(ask("many", &format!("{work} 2")), Ok(()));
        }
        assert_eq!(ask("many", "0 1"), Err(ErrorCode::Conflict));
        assert_eq!(ask("broker", "a 1"), Ok(()), "forgotten");
    }
}
