//! Commands of a Markdown page, and the output that the page shows for them.

/// A block of commands and the output shown after it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Line of the page at which the block begins.
    pub(crate) line: usize,
    pub(crate) commands: Vec<String>,
    /// Expected output of all commands; `None` if the page shows none.
    pub(crate) output: Option<String>,
    /// Whether the last command fails: the page shows its error.
    pub(crate) fails: bool,
}

/// A code block of any language.
struct CodeBlock<'a> {
    /// Line of the page at which the block begins.
    line: usize,
    language: &'a str,
    lines: Vec<&'a str>,
    /// Whether only blank lines are between the previous block and this one.
    follows: bool,
}

/// Returns all code blocks of a page.
fn code_blocks(page: &str) -> Vec<CodeBlock<'_>> {
    let mut found: Vec<CodeBlock<'_>> = Vec::new();
    let (mut open, mut follows) = (None, false);
    for (number, line) in page.lines().enumerate() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(language)) => {
                open = Some(CodeBlock {
                    line: number + 1,
                    language: language.trim(),
                    lines: Vec::new(),
                    follows,
                });
            }
            (None, None) => follows &= line.trim().is_empty(),
            (Some(_), Some("")) => {
                found.extend(open.take());
                follows = true;
            }
            (Some(code), _) => code.lines.push(line),
        }
    }
    assert!(open.is_none(), "a block is not closed");
    found
}

/// Returns the commands of a page: blocks in `sh`, and sessions whose commands begin with `$`.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut shell_before = false;
    for code in code_blocks(page) {
        let is_shell = matches!(code.language, "sh" | "bash" | "shell" | "console");
        if is_shell {
            blocks.push(Block {
                line: code.line,
                commands: commands(&code.lines),
                output: None,
                fails: false,
            });
        } else if code.lines.first().is_some_and(|line| line.starts_with("$ ")) {
            blocks.extend(session(&code));
        } else if let (true, true, Some(block)) = (shell_before, code.follows, blocks.last_mut()) {
            block.fails = code.lines.iter().any(|line| line.starts_with("error: "));
            block.output = Some(code.lines.join("\n"));
        }
        shell_before = is_shell;
    }
    blocks
}

/// Splits a session into its commands, each with its output.
fn session(code: &CodeBlock<'_>) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for (number, line) in code.lines.iter().enumerate() {
        match (line.strip_prefix("$ "), blocks.last_mut()) {
            (Some(command), _) => blocks.push(Block {
                line: code.line + 1 + number,
                commands: vec![command.to_owned()],
                output: Some(String::new()),
                fails: false,
            }),
            (None, Some(block)) => {
                block.fails |= line.starts_with("error: ");
                let output = block.output.get_or_insert_default();
                output.push_str(line);
                output.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

/// Splits shell text into commands. A line that ends in a backslash continues, and a `for` loop ends at its `done`.
fn commands(lines: &[&str]) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut continues = false;
    for line in lines {
        let text = without_comment(line);
        let is_empty = text.trim().is_empty();
        match commands.last_mut() {
            Some(command) if continues => {
                command.push('\n');
                command.push_str(text);
            }
            _ if is_empty => continue,
            _ => commands.push(text.to_owned()),
        }
        continues = commands.last().is_some_and(|command| {
            let in_loop = command.starts_with("for ") && !command.ends_with("done");
            text.ends_with('\\') || in_loop
        });
    }
    commands
}

/// Removes a comment and the spaces before it. The pages have no `#` in quotes.
fn without_comment(line: &str) -> &str {
    let end = match line.starts_with('#') {
        true => 0,
        false => line.find(" #").unwrap_or(line.len()),
    };
    line[..end].trim_end()
}

#[test]
fn commands_and_their_output_are_found() {
    let page = "# Page\n\n```sh\na --b \\\n  c   # why\nfor i in 1 2; do\n  d $i\ndone\n\ne\n```\n```\nout\nput\n```\n\n\
                ```\nnot output\n```\n```sh\nf\n```\nText.\n```\ndata\n```\n```\n$ g\nerror: bad\n$ h\nfine\n```\n";
    let block = |line, commands: &[&str], output: Option<&str>, fails| Block {
        line,
        commands: commands.iter().map(|c| (*c).to_owned()).collect(),
        output: output.map(str::to_owned),
        fails,
    };
    assert_eq!(
        blocks(page),
        [
            block(
                3,
                &["a --b \\\n  c", "for i in 1 2; do\n  d $i\ndone", "e"],
                Some("out\nput"),
                false
            ),
            block(20, &["f"], None, false),
            block(28, &["g"], Some("error: bad\n"), true),
            block(30, &["h"], Some("fine\n"), false),
        ]
    );
}
