// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a case.

use weir_sched::{
    AnyScheduler, ClassConfig, ClassId, Dequeue, LinkClock, LinkConfig, Paced, Packet, Scheduler,
    TokenBucket,
};
use weir_units::{BitRate, ByteCount, Instant, Nanos};

use crate::case::{Case, configure};

/// The lines that the case gives.
pub(crate) fn run(case: &Case) -> Vec<String> {
    match case.subject() {
        "bucket" => bucket(case),
        "clock" => clock(case),
        _ => Run::new(case).run(case),
    }
}

fn bucket(case: &Case) -> Vec<String> {
    let number = |key| case.value(key).unwrap().parse::<u64>().unwrap();
    let mut bucket = TokenBucket::new(number("rate"), number("burst"), Instant::ZERO);
    let answer = |line: &String| {
        let (now, words) = timed(line);
        let amount = words[1].parse().unwrap();
        match bucket.try_take(Instant::from_nanos(now), amount) {
            Ok(()) => format!("{now} taken {amount}"),
            Err(until) => format!("{now} wait {}", until.as_nanos()),
        }
    };
    case.input.iter().map(answer).collect()
}

fn clock(case: &Case) -> Vec<String> {
    let catch_up = case.value("catch_up").unwrap().parse().unwrap();
    let mut clock = LinkClock::new(case.rate("link").unwrap(), catch_up);
    let answer = |line: &String| {
        let (now, words) = timed(line);
        match (words[0], clock.ready(Instant::from_nanos(now))) {
            ("idle", _) => clock.idle_until(Instant::from_nanos(now)),
            (_, Err(until)) => return format!("{now} wait {}", until.as_nanos()),
            (_, Ok(())) => {
                let bytes = ByteCount::new(words[1].parse().unwrap());
                clock.sent(Instant::from_nanos(now), bytes);
            }
        }
        format!("{now} {} busy until {}", words[0], clock.busy_until().as_nanos())
    };
    case.input.iter().map(answer).collect()
}

struct Run {
    scheduler: Box<dyn Scheduler>,
    /// The wire's rate, where nothing paces the scheduler.
    wire: Option<BitRate>,
    link: Option<BitRate>,
    classes: Vec<Class>,
    log: Vec<String>,
    /// When the wire is free.
    free: u64,
}

struct Class {
    name: String,
    config: ClassConfig,
    id: ClassId,
    offered: u32,
    gone: u32,
}

impl Run {
    fn new(case: &Case) -> Self {
        let (rate, wire) = (case.rate("link"), case.rate("wire"));
        let link = LinkConfig { rate, catch_up: Nanos::ZERO, classes_max: 8, packets_max: 10_000 };
        let bare = AnyScheduler::new(case.subject().parse().unwrap(), &link);
        let mut scheduler: Box<dyn Scheduler> = match wire {
            Some(_) => Box::new(bare),
            None => Box::new(Paced::new(bare, &link)),
        };
        let mut classes = Vec::new();
        for (name, config) in case.classes() {
            let id = scheduler.add_class(Instant::ZERO, None, &config).unwrap();
            classes.push(Class { name, config, id, offered: 0, gone: 0 });
        }
        Self { scheduler, wire, link: rate, classes, log: Vec::new(), free: 0 }
    }

    fn run(mut self, case: &Case) -> Vec<String> {
        let mut input = case.input.iter().map(|line| timed(line)).peekable();
        let mut now = 0;
        loop {
            while let Some((_, words)) = input.next_if(|(at, _)| *at <= now) {
                self.feed(now, &words);
            }
            let next_input = input.peek().map(|(at, _)| *at);
            let next_pull = self.pull(now);
            now = match (next_input, next_pull) {
                (Some(input), Some(pull)) => input.min(pull),
                (Some(next), None) | (None, Some(next)) => next,
                (None, None) => break,
            };
        }
        for class in &self.classes {
            assert_eq!(class.gone, class.offered, "packets of {} that came out", class.name);
        }
        self.log
    }

    fn feed(&mut self, now: u64, words: &[&str]) {
        let at = Instant::from_nanos(now);
        if words[0] == "change" {
            let class = self.classes.iter_mut().find(|class| class.name == words[1]).unwrap();
            configure(&mut class.config, &words[2..].join(" "));
            self.scheduler.change_class(at, class.id, &class.config).unwrap();
            return;
        }
        let class = self.classes.iter_mut().find(|class| class.name == words[0]).unwrap();
        for word in &words[1..] {
            let (word, flow) = word.split_once('@').unwrap_or((word, "0"));
            let (bytes, ecn) = match word.strip_suffix('e') {
                Some(bytes) => (bytes, true),
                None => (word, false),
            };
            class.offered += 1;
            let packet = Packet::new(class.offered, bytes.parse().unwrap(), at);
            let packet = packet.of_flow(flow.parse().unwrap());
            let packet = if ecn { packet.ecn_capable() } else { packet };
            if let Err(reason) = self.scheduler.enqueue(at, class.id, packet) {
                class.gone += 1;
                self.log.push(format!("{now} refuse {}{} {reason:?}", class.name, class.offered));
            }
        }
    }

    /// Pulls as long as something comes; says when to pull again.
    fn pull(&mut self, now: u64) -> Option<u64> {
        if now < self.free && self.wire.is_some() {
            return Some(self.free);
        }
        let answer = self.scheduler.dequeue(Instant::from_nanos(now));
        let (verb, class, packet) = match answer {
            Dequeue::Send { class, packet, mark: false } => ("send", class, packet),
            Dequeue::Send { class, packet, mark: true } => ("mark", class, packet),
            Dequeue::Dropped { class, packet, .. } => ("drop", class, packet),
            Dequeue::Wait { until, why } => {
                // That a paced link is busy goes without saying.
                if self.wire.is_some() || format!("{why:?}") != "LinkBusy" {
                    self.note(format!("{now} wait {} {why:?}", until.as_nanos()));
                }
                return Some(until.as_nanos());
            }
            Dequeue::Idle if now < self.free => return Some(self.free),
            Dequeue::Idle => {
                self.note(format!("{now} idle"));
                return None;
            }
        };
        let class = self.classes.iter_mut().find(|known| known.id == class).unwrap();
        class.gone += 1;
        self.log.push(format!("{now} {verb} {}{} {}", class.name, packet.id, packet.bytes()));
        if verb != "drop" {
            assert!(now >= self.free, "two packets at once on the link");
            let rate = self.wire.or(self.link).unwrap();
            let time = rate.time_for_ceil(ByteCount::new(packet.bytes().into()));
            self.free = now + time.as_nanos();
        }
        Some(now)
    }

    /// Once for every state that lasts.
    fn note(&mut self, line: String) {
        if self.log.last() != Some(&line) {
            self.log.push(line);
        }
    }
}

/// `at TIME words...`
fn timed(line: &str) -> (u64, Vec<&str>) {
    let mut words = line.split_whitespace();
    assert_eq!(words.next(), Some("at"), "{line}");
    (words.next().unwrap().parse().unwrap(), words.collect())
}
