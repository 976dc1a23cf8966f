// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Source text with comments and literals blanked out, so that a rule on code sees code alone.

/// Blanks the insides of comments, strings and characters of a text in Rust or C. Line breaks stay,
/// and every byte keeps its offset.
pub(crate) fn mask(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut masked = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(text, at);
        match end {
            Some(end) => {
                for byte in &mut masked[at..end] {
                    if *byte != b'\n' {
                        *byte = b' ';
                    }
                }
                at = end;
            }
            None => at += 1,
        }
    }
    // Only whole characters were blanked, as every literal begins and ends in ASCII.
    String::from_utf8_lossy(&masked).into_owned()
}

/// Returns the end of the comment or literal that begins at `at`, if one does.
fn literal_end(text: &str, at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let rest = &bytes[at..];
    match rest.first()? {
        b'/' if rest.starts_with(b"//") => Some(at + find(rest, b"\n").unwrap_or(rest.len())),
        b'/' if rest.starts_with(b"/*") => Some(at + block_comment(rest)),
        b'"' => Some(at + quoted(rest, b'"')),
        b'r' if !follows_a_word(bytes, at) => raw_string(rest).map(|length| at + length),
        b'\'' => character(text, at),
        _ => None,
    }
}

/// Returns the length of a block comment, which may contain others, as in Rust.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#` and so on; the `b` or `c` in front of it is left as code.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let body = &rest[2 + hashes..];
    Some(find(body, &close).map_or(rest.len(), |end| 2 + hashes + end + close.len()))
}

/// A character literal, or nothing where the quote begins a lifetime.
fn character(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    let mut inside = rest[1..].chars();
    let first = inside.next()?;
    if first == '\\' {
        return Some(at + quoted(rest.as_bytes(), b'\''));
    }
    (inside.next()? == '\'').then(|| at + 2 + first.len_utf8())
}

/// Returns true if the byte before `at` belongs to a word, other than the `b` of `br"…"`.
fn follows_a_word(bytes: &[u8], at: usize) -> bool {
    let word = |index: usize| {
        bytes.get(index).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    };
    let Some(before) = at.checked_sub(1) else { return false };
    if !word(before) {
        return false;
    }
    let prefix = matches!(bytes[before], b'b' | b'c');
    !prefix || before.checked_sub(1).is_some_and(word)
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// Finds `word` in `code` as a word of its own; returns its line, counted from 1.
pub(crate) fn line_of_word(code: &str, word: &str) -> Option<usize> {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let alone = |at: &usize| {
        let after = code[at + word.len()..].chars().next();
        let open_end = word.ends_with(|c: char| !c.is_alphanumeric());
        !part(code[..*at].chars().next_back()) && (open_end || !part(after))
    };
    let at = code.match_indices(word).map(|(at, _)| at).find(alone)?;
    Some(code[..at].matches('\n').count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_become_spaces() {
        for (source, expected) in [
            ("a // unsafe", "a          "),
            ("a /* x /* y */ z */ b", "a                   b"),
            (r#"f("\"{", 1)"#, "f(     , 1)"),
            ("f(r#\"{\"#)", "f(      )"),
            ("f(br\"{\")", "f(b    )"),
            ("c == '{' && 'a", "c ==     && 'a"),
            ("x: &'a str = '\\''", "x: &'a str =     "),
            ("'ä' {", "     {"),
            ("for\"{\"", "for   "),
        ] {
            assert_eq!(mask(source), expected, "{source}");
        }
        assert_eq!(mask("\"a\nb\"\nc"), "  \n  \nc");
    }

    #[test]
    fn a_word_is_found_as_a_word() {
        assert_eq!(line_of_word("unsafe_code\nan unsafe {", "unsafe"), Some(2));
        assert_eq!(line_of_word("unsafe_code", "unsafe"), None);
        assert_eq!(line_of_word("std::x\nmystd::y", "std::"), Some(1));
        assert_eq!(line_of_word("mystd::y", "std::"), None);
    }
}
