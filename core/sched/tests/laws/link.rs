// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The laws of the bucket and of the link's clock by themselves.

use weir_sched::{LinkClock, TokenBucket};
use weir_units::{BitRate, ByteCount, Instant, Nanos};

use crate::random::Random;

/// Goal: in any window `taken ≤ burst + rate · T`, and whoever asks again at the instants named
/// gets `rate · T` less one amount. Method: random rates, bursts, amounts and pauses; the worst
/// window by a running minimum and maximum.
#[test]
fn a_bucket_keeps_the_window_law_on_both_sides() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let rate = random.between(1, 3_000_000_000);
        let burst = random.between(1500, 100_000);
        let mut bucket = TokenBucket::new(rate, burst, at(0));
        let (mut now, mut taken, mut least, mut most) = (0, 0, i128::MAX, i128::MIN);
        for _ in 0..500 {
            let amount = random.between(1, 1500);
            if random.one_in(50) {
                now += random.below(1_000_000);
                // Whoever does not ask forgoes what he would have got.
                most = i128::MIN;
            }
            if let Err(until) = bucket.try_take(at(now), amount) {
                now = until.as_nanos();
                assert_eq!(bucket.try_take(until, amount), Ok(()), "at the instant named");
            }
            let earned = i128::from(now) * i128::from(rate);
            least = least.min(taken - earned);
            taken += i128::from(amount) * 1_000_000_000;
            assert!(taken - earned - least <= i128::from(burst) * 1_000_000_000);
            most = most.max(taken - earned);
            let behind = most - (taken - earned);
            assert!(behind <= 1500 * 1_000_000_000 + i128::from(rate));
        }
    }
}

/// Goal: refilling in k steps equals refilling in one. Method: one bucket is asked at many instants
/// on the way, the other only at the end; then they are equal in all they do.
#[test]
fn many_refills_equal_one() {
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let (rate, burst) = (random.between(0, 10_000_000_000), random.below(10_000));
        let mut asked = TokenBucket::new(rate, burst, at(0));
        asked.take(at(0), burst + random.below(5000));
        let mut left_alone = asked.clone();
        let mut now = 0;
        for _ in 0..random.below(100) {
            now += random.below(1000);
            asked.take(at(now), 0);
        }
        left_alone.take(at(now), 0);
        assert_eq!(asked, left_alone);
    }
}

/// Goal: a link on time carries exactly its rate, whatever rate and sizes. Method: packets back to
/// back; the end of the n-th is the sum of all bits over the rate, rounded up once.
#[test]
fn a_link_on_time_is_exact() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let rate = random.between(1000, 400_000_000_000);
        let mut clock = LinkClock::new(BitRate::from_bps(rate), Nanos::ZERO);
        let begin = random.below(1_000_000);
        clock.idle_until(at(begin));
        let mut bits = 0;
        for _ in 0..1000 {
            let bytes = random.length();
            clock.sent(clock.busy_until(), ByteCount::new(bytes.into()));
            bits += u128::from(bytes) * 8;
            let end = u128::from(begin) + (bits * 1_000_000_000).div_ceil(rate.into());
            assert_eq!(u128::from(clock.busy_until().as_nanos()), end);
        }
    }
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}
