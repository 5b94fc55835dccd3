//! A function fits on a screen, and a file has one idea.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use crate::{crates, rust_files, shown};

/// The most lines a function may have, from `fn` to its closing brace.
const FUNCTION_LINES: usize = 70;

/// The most lines a file may have.
const FILE_LINES: usize = 500;

/// The most lines the median file may have.
const MEDIAN_LINES: usize = 200;

/// The most files with inherent `impl` blocks of one type.
const IMPL_FILES: usize = 2;

/// Data tables and other exceptions: the file, the function or nothing for the whole file, and why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    (
        "kubeapi/src/objects.rs",
        "",
        "the fields of Kubernetes objects, a data table",
    ),
    (
        "engine/src/events.rs",
        "handle",
        "one arm for each event, a dispatch table",
    ),
];

/// The sources of all crates, tests left out.
fn sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(crates()).unwrap() {
        let folder = entry.unwrap().path().join("src");
        if folder.is_dir() {
            files.extend(rust_files(&folder));
        }
    }
    files.sort();
    files
}

/// Rust source with every comment, text literal and character literal replaced by spaces; line breaks stay.
fn blank_out_text(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = bytes.to_vec();
    let mut i = 0;
    while i < bytes.len() {
        let end = match bytes[i] {
            b'/' if source[i..].starts_with("//") => source[i..].find('\n').map_or(bytes.len(), |n| i + n),
            b'/' if source[i..].starts_with("/*") => {
                source[i..].find("*/").map_or(bytes.len(), |n| i + n + 2)
            }
            b'r' if !is_word(bytes, i) && raw_literal(&source[i..]).is_some() => {
                i + raw_literal(&source[i..]).unwrap_or(1)
            }
            b'"' => i + quoted(&bytes[i..]),
            b'\'' => i + character(&bytes[i..]),
            _ => {
                i += 1;
                continue;
            }
        };
        for byte in &mut out[i..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        i = end;
    }
    String::from_utf8(out).expect("only whole literals are replaced")
}

/// Whether the byte before this one belongs to an identifier, so that this one does not begin a literal.
fn is_word(bytes: &[u8], i: usize) -> bool {
    i > 0 && (bytes[i - 1].is_ascii_alphanumeric() || bytes[i - 1] == b'_') && bytes[i - 1] != b'b'
}

/// The length of a raw text literal at the beginning of the source, if there is one.
fn raw_literal(source: &str) -> Option<usize> {
    let hashes = source[1..].bytes().take_while(|b| *b == b'#').count();
    let body = source.get(1 + hashes..)?;
    if !body.starts_with('"') {
        return None;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let end = body[1..].find(&close)?;
    Some(1 + hashes + 1 + end + close.len())
}

/// The length of the text literal at the beginning of the source.
fn quoted(bytes: &[u8]) -> usize {
    let mut i = 1;
    while i < bytes.len() && bytes[i] != b'"' {
        i += if bytes[i] == b'\\' { 2 } else { 1 };
    }
    (i + 1).min(bytes.len())
}

/// The length of the character literal at the beginning of the source; one for a lifetime.
fn character(bytes: &[u8]) -> usize {
    match bytes {
        [_, b'\\', ..] => bytes
            .iter()
            .skip(3)
            .position(|b| *b == b'\'')
            .map_or(1, |n| n + 4),
        _ => {
            // A character has at most four bytes; a lifetime has no closing quote there.
            (2..=5)
                .find(|n| {
                    bytes.get(*n) == Some(&b'\'')
                        && std::str::from_utf8(&bytes[1..*n]).is_ok_and(|c| c.chars().count() == 1)
                })
                .map_or(1, |n| n + 1)
        }
    }
}

/// Every function with a body: its name, the line it begins at, and its lines.
fn functions(source: &str) -> Vec<(String, usize, usize)> {
    let text = blank_out_text(source);
    let mut found = Vec::new();
    for (at, _) in text.match_indices("fn ") {
        let before = text[..at].bytes().next_back();
        if before.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_') {
            continue;
        }
        let name: String = text[at + 3..]
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let Some(body) = body(&text[at..]) else { continue };
        if name.is_empty() {
            continue;
        }
        let first = text[..at].matches('\n').count() + 1;
        let lines = text[at..at + body].matches('\n').count() + 1;
        found.push((name, first, lines));
    }
    found
}

/// The length of a function from `fn` to its closing brace, if it has a body.
fn body(text: &str) -> Option<usize> {
    let (mut round, mut curly) = (0, 0);
    for (i, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' => round += 1,
            b')' | b']' => round -= 1,
            b';' if round == 0 && curly == 0 => return None,
            b'{' => curly += 1,
            b'}' => {
                curly -= 1;
                if curly == 0 {
                    return Some(i + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// The types that have an inherent `impl` block in this source, without the path before their name.
fn implemented_types(source: &str) -> BTreeSet<String> {
    let text = blank_out_text(source);
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("impl") {
        let before = text[..at].trim_end_matches([' ', '\t']).chars().next_back();
        let is_item = before.is_none_or(|c| matches!(c, '\n' | '{' | '}' | ';' | ']'));
        if !is_item {
            continue;
        }
        let Some(end) = text[at..].find('{') else { continue };
        let header = &text[at + "impl".len()..at + end];
        if !header.starts_with([' ', '<']) || header.split_whitespace().any(|word| word == "for") {
            continue;
        }
        let name = &header[generics(header)..];
        let path: String = name
            .trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || matches!(c, '_' | ':'))
            .collect();
        found.extend(path.rsplit("::").next().map(str::to_owned));
    }
    found
}

/// The length of the generic parameters at the beginning of the text, with their angle brackets.
fn generics(text: &str) -> usize {
    let mut depth = 0;
    for (i, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            // The bracket of `->` in a bound closes nothing.
            '>' if !text[..i].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if c == '>' { i + 1 } else { 0 };
        }
    }
    0
}

/// The types of each crate whose inherent `impl` blocks are in too many files. Gets the name and the source of each file;
/// a name begins with the crate. Types of equal names in one crate count as one.
fn scattered_types(files: &[(String, String)]) -> Vec<String> {
    let mut places: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for (file, source) in files {
        let krate = file.split('/').next().unwrap_or_default();
        for name in implemented_types(source) {
            places.entry((krate, name)).or_default().push(file);
        }
    }
    places.retain(|_, files| files.len() > IMPL_FILES);
    let report = |((krate, name), files): (&(&str, String), &Vec<&str>)| {
        format!("{krate}::{name}: {}", files.join(", "))
    };
    places.iter().map(report).collect()
}

fn is_excepted(file: &str, function: &str) -> bool {
    EXCEPTIONS
        .iter()
        .any(|(f, name, _)| *f == file && *name == function)
}

#[test]
fn no_function_is_longer_than_a_screen() {
    let mut found = Vec::new();
    for file in sources() {
        let name = shown(&file);
        let long = functions(&fs::read_to_string(&file).unwrap());
        let long = long.into_iter().filter(|(_, _, lines)| *lines > FUNCTION_LINES);
        for (function, line, lines) in long.filter(|(function, ..)| !is_excepted(&name, function)) {
            found.push(format!("{name}:{line}: fn {function} has {lines} lines"));
        }
    }
    assert!(
        found.is_empty(),
        "more than {FUNCTION_LINES} lines:\n{}",
        found.join("\n")
    );
}

#[test]
fn no_file_is_too_long_and_most_are_short() {
    let mut sizes = Vec::new();
    let mut found = Vec::new();
    for file in sources() {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        sizes.push(lines);
        if lines > FILE_LINES && !is_excepted(&shown(&file), "") {
            found.push(format!("{}: {lines} lines", shown(&file)));
        }
    }
    sizes.sort_unstable();
    let median = sizes[sizes.len() / 2];
    assert!(
        found.is_empty(),
        "more than {FILE_LINES} lines:\n{}",
        found.join("\n")
    );
    assert!(median <= MEDIAN_LINES, "the median file has {median} lines");
}

#[test]
fn no_type_is_implemented_in_more_than_two_files() {
    let files: Vec<(String, String)> = sources()
        .iter()
        .map(|file| (shown(file), fs::read_to_string(file).unwrap()))
        .collect();
    let found = scattered_types(&files);
    assert!(
        found.is_empty(),
        "inherent impl blocks in more than {IMPL_FILES} files; split these types:\n{}",
        found.join("\n")
    );
}

#[test]
fn every_exception_is_still_needed_and_says_why() {
    for (file, function, why) in EXCEPTIONS {
        let source = fs::read_to_string(crates().join(file)).unwrap();
        let needed = match *function {
            "" => source.lines().count() > FILE_LINES,
            name => functions(&source)
                .iter()
                .any(|(f, _, lines)| f == name && *lines > FUNCTION_LINES),
        };
        assert!(needed, "{file} {function} is short enough by now");
        assert!(
            !why.is_empty(),
            "{file} {function}: the exception gives no reason"
        );
    }
}

#[test]
fn a_decision_names_its_steps() {
    let sources = rust_files(&crates().join("engine/src"));
    let decide = sources.iter().find_map(|file| {
        let source = fs::read_to_string(file).unwrap();
        let (_, first, lines) = functions(&source)
            .into_iter()
            .find(|(name, ..)| name == "decide")?;
        let body: Vec<String> = source
            .lines()
            .skip(first - 1)
            .take(lines)
            .map(str::to_owned)
            .collect();
        Some(body)
    });
    let body = decide.expect("the engine has a function `decide`");
    assert!(
        body.len() <= 50,
        "`decide` has {} lines and does not fit on one screen",
        body.len()
    );
    let text = body.join("\n");
    for step in ["admit", "order", "walk", "size", "group", "place", "diff"] {
        assert!(
            text.contains(step),
            "`decide` does not name the step {step:?}:\n{text}"
        );
    }
}

#[test]
fn functions_are_measured_from_fn_to_brace() {
    let source = "fn a() {\n    let x = \"}\"; // }\n    let y = '}';\n}\n\ntrait T {\n    fn b(&self);\n    fn c<'a>(x: &'a str) -> [u8; 2] {\n        r#\"{\"#;\n    }\n}\n";
    assert_eq!(
        functions(source),
        [("a".to_owned(), 1, 4), ("c".to_owned(), 8, 3)]
    );
}

#[test]
fn types_are_found_by_their_inherent_impl_blocks() {
    let source = "impl A {}\nimpl<'a, F: Fn(u8) -> u8> b::B<'a, F> {}\n    impl<const N: usize> C<N>\n    where\n        [(); N]: Sized,\n    {}\n\
                  impl Display for D {}\nimpl<T> From<T> for E {}\nfn f(x: impl Fn()) -> impl G {}\n// impl H {}\n";
    let expected = ["A", "B", "C"].map(str::to_owned);
    assert_eq!(implemented_types(source), BTreeSet::from(expected));
}

#[test]
fn a_type_in_three_files_is_reported() {
    let file = |name: &str, source: &str| (name.to_owned(), source.to_owned());
    let mut files = vec![
        file("sim/src/a.rs", "impl Run<'_> {}\nimpl Run<'_> {}"),
        file("sim/src/b.rs", "impl<'a> Run<'a> {}"),
        file("web/src/c.rs", "impl Run {}"),
        file("sim/src/d.rs", "impl Drop for Run<'_> {}"),
    ];
    assert!(scattered_types(&files).is_empty());
    files.push(file("sim/src/e.rs", "impl Run<'static> {}"));
    assert_eq!(
        scattered_types(&files),
        ["sim::Run: sim/src/a.rs, sim/src/b.rs, sim/src/e.rs"]
    );
}
