// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Goal: no text makes the reader panic, run away or contradict itself. Method: mutations of the
//! cases from a fixed seed; and the texts that cost a naive reader most, in size and depth.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a panic is how a test fails"
)]

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Marsaglia's xorshift64, so that a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension().unwrap() == "toml").collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn mutate(random: &mut Random, seeds: &[Vec<u8>]) -> String {
    let mut text = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(text.len());
        match random.below(4) {
            0 => text.truncate(at),
            1 => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len());
                let to = (from + random.below(40)).min(other.len());
                text.splice(at..at, other[from..to].iter().copied());
            }
            2 => {
                let to = (at + random.below(20)).min(text.len());
                text.drain(at..to);
            }
            _ => {
                let byte = b"0123456789.\"[]{}=\n#-_ \xc3"[random.below(23)];
                text.splice(at..at, [byte]);
            }
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn mutated_documents_are_answered_soundly() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let seeds = seeds();
    let mut sound = 0;
    for _ in 0..5_000 {
        let text = mutate(&mut random, &seeds);
        match weir_policy::parse(&text) {
            Ok(policy) => {
                sound += 1;
                assert_eq!(weir_policy::parse(&policy.to_toml()), Ok(policy), "{text}");
            }
            Err(problems) => assert!(!problems.list().is_empty(), "{text}"),
        }
    }
    // The mutations reach both answers.
    assert!((50..4_900).contains(&sound), "{sound}");
}

/// A tenth of the largest document must not take long; the bound is a hundred times what it takes.
#[test]
fn costly_texts_are_answered_in_time() {
    let head = "version = 1\nport = [{ name = \"p\", rate = \"1Gbit\" }]\n";
    let many = |piece: &str| piece.repeat(800_000 / piece.len());
    let numbered = |make: &dyn Fn(usize) -> String| (0..8_192).map(make).collect::<String>();
    let texts = [
        many("["),
        many("[[vif]]\n"),
        many("[[vi]]\n"),
        many("a."),
        many("{a="),
        format!("a = {}", many("[")),
        format!("a = {}", many("{b=")),
        format!("{head}{}", (0..80_000).map(|n| format!("k{n} = 1\n")).collect::<String>()),
        format!("{head}{} = 1", many("x")),
        format!("{head}node = {{ name = \"{}\" }}", many("x")),
        format!(
            "{head}[[slice]]\nname = \"s\"\n{}",
            numbered(&|n| {
                format!(
                    "[[vif]]\nname = \"v{n}\"\nslice = \"s\"\ndelay = \"{n}us\"\n\
                     send = {{ min_rate = \"1kbit\", queue = {{ packets = 1 }} }}\n\
                     receive = {{ queue = {{ packets = 1 }} }}\n"
                )
            })
        ),
        format!("{head}{}", numbered(&|n| format!("[[vif]]\nname = \"v{n}\"\nslice = \"s\"\n"))),
    ];
    for text in texts {
        let start = Instant::now();
        let answer = weir_policy::parse(&text);
        let took = start.elapsed();
        let shown: String = text.chars().skip(head.len()).take(40).collect();
        println!(
            "{took:?} {shown:?} {:?}",
            answer.as_ref().err().map(|all| all.list()[0].to_string())
        );
        assert!(answer.is_err(), "{shown:?}");
        assert!(took < Duration::from_secs(60), "{took:?} {shown:?}");
    }
}

#[test]
fn a_document_beyond_the_bound_is_refused() {
    let text = " ".repeat((8 << 20) + 1);
    let message = weir_policy::parse(&text).unwrap_err().to_string();
    assert_eq!(message, "1:1: is 8388609 bytes long, at most 8388608");
}
