// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Length of functions, in Rust and C.

use super::file::{SourceFile, StyleProblem};
use super::mask::mask;

/// A function has at most 70 lines, from its signature to its closing brace.
pub(crate) fn function_length(file: &SourceFile) -> Vec<StyleProblem> {
    let functions = if file.has_extension(&["rs"]) {
        rust_functions(&file.text)
    } else if file.has_extension(&["c", "h"]) {
        c_functions(&file.text)
    } else {
        return Vec::new();
    };
    let long = functions.into_iter().filter(|function| function.lines > LINES_MAX);
    long.map(|function| {
        let Function { name, line, lines } = function;
        file.problem(line, format!("function {name} has {lines} lines, at most {LINES_MAX}"))
    })
    .collect()
}

struct Function {
    name: String,
    line: usize,
    lines: usize,
}

fn rust_functions(text: &str) -> Vec<Function> {
    let code = mask(text);
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut functions = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if code[..at].chars().next_back().is_some_and(is_word) {
            continue;
        }
        let name: String = code[at + 3..].chars().take_while(|c| is_word(*c)).collect();
        let Some(open) = body(&code[at..]).filter(|_| !name.is_empty()) else { continue };
        functions.push(function(name, &code, at, at + open));
    }
    functions
}

/// Finds the functions of C: a brace at the top level after a closing parenthesis opens a body.
fn c_functions(text: &str) -> Vec<Function> {
    let code = mask(text);
    let mut functions = Vec::new();
    let mut depth = 0_u32;
    for (at, c) in code.char_indices() {
        match c {
            '{' => {
                let before = code[..at].trim_end();
                if depth == 0 && before.ends_with(')') {
                    let begin = before.rfind(['}', ';', '#']).map_or(0, |end| end + 1);
                    let signature = &code[begin..at];
                    let start = begin + signature.len() - signature.trim_start().len();
                    let head = signature.split('(').next().unwrap_or_default();
                    let name = head.split_whitespace().next_back().unwrap_or("?");
                    functions.push(function(name.trim_matches('*').into(), &code, start, at));
                }
                depth += 1;
            }
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    functions
}

/// Finds the opening of the function's body; `None` if it has none, in a trait or a type.
fn body(code: &str) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' if depth == 0 => return Some(at),
            ';' if depth == 0 => return None,
            _ => {}
        }
        // The parenthesis around this `fn` closes, so the `fn` is part of a type.
        if depth < 0 {
            return None;
        }
    }
    None
}

fn function(name: String, code: &str, start: usize, open: usize) -> Function {
    let mut depth = 0_u32;
    let mut close = code.len();
    for (at, c) in code[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            close = open + at;
            break;
        }
    }
    let lines = code[start..close].matches('\n').count() + 1;
    Function { name, line: code[..start].matches('\n').count() + 1, lines }
}

const LINES_MAX: usize = 70;

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        function_length(&SourceFile::of(path, text)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn seventy_lines_pass_and_one_more_does_not() {
        let body = |lines: usize| "    let brace = '{'; // }\n".repeat(lines);
        let rust = |lines| format!("trait T {{ fn a(); }}\n\nfn b() {{\n{}}}\n", body(lines));
        assert_eq!(messages("a.rs", &rust(68)), [""; 0]);
        assert_eq!(messages("a.rs", &rust(69)), ["a.rs:3: function b has 71 lines, at most 70"]);
        let c = |lines| format!("struct s {{ int a; }};\nint *b(int c)\n{{\n{}}}\n", body(lines));
        assert_eq!(messages("a.c", &c(67)), [""; 0]);
        assert_eq!(messages("a.c", &c(68)), ["a.c:2: function b has 71 lines, at most 70"]);
    }

    #[test]
    fn a_type_that_names_a_function_is_none() {
        let text = "struct A {\n    f: Box<dyn Fn(u8)>,\n    g: fn (u8),\n}\nfn h() {}\n";
        let names: Vec<_> = rust_functions(text).into_iter().map(|f| f.name).collect();
        assert_eq!(names, ["h"]);
    }
}
