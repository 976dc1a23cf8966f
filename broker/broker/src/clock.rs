// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wall time: what the calendar and leases are kept in, since they outlive a broker.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::Instant as Moment;
use weir_units::Instant;

/// Returns the time, as nanoseconds since 1970.
pub(crate) fn now() -> Instant {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Instant::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Reads a time as RFC 3339 writes it.
///
/// # Errors
/// It has another form, or is before 1970 or after 2500.
pub(crate) fn parsed(text: &str) -> Result<Instant, String> {
    let form = || format!("{text:?} is no time such as 2027-01-31T12:00:00Z");
    let time = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| form())?;
    let nanos = u64::try_from(time.unix_timestamp_nanos()).map_err(|_| form())?;
    if nanos > LATEST_NS {
        return Err(format!("{text:?} is after 2500"));
    }
    Ok(Instant::from_nanos(nanos))
}

/// Writes a time as RFC 3339 does, in UTC and in whole milliseconds.
pub(crate) fn text(time: Instant) -> String {
    let nanos = i128::from(time.as_nanos() / 1_000_000 * 1_000_000);
    let time = OffsetDateTime::from_unix_timestamp_nanos(nanos).ok();
    time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_default()
}

/// Returns the moment of a wall time; in case that clock is set, no later than in a minute.
pub(crate) fn on_the_clock(time: Instant) -> Moment {
    let wait = Duration::from_nanos(time.saturating_since(now()).as_nanos());
    Moment::now() + wait.min(Duration::from_secs(60))
}

/// Waits until a time; for ever without one.
pub(crate) async fn until(time: Option<Moment>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// The year 2500: a time and a lease added still fit into 64 bits of nanoseconds.
const LATEST_NS: u64 = 16_725_225_600_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        let time = parsed("2027-01-31T13:00:00.25+01:00").unwrap();
        assert_eq!(text(time), "2027-01-31T12:00:00.25Z");
        assert_eq!(parsed(&text(time)).unwrap(), time);
        for wrong in ["", "tomorrow", "1969-12-31T23:59:59Z", "2600-01-01T00:00:00Z"] {
            parsed(wrong).unwrap_err();
        }
    }
}
