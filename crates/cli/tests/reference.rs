//! `docs/cli.md` is the help of every command, word for word.

use clap::CommandFactory;
use dovetail::args::Cli;

#[test]
fn the_cli_reference_is_up_to_date() {
    let mut text = String::from(
        "# Command line reference\n\nThe help of every command. Made by `UPDATE_DOCS=1 cargo test -p dovetail --test reference`.\n",
    );
    let mut cli = Cli::command().term_width(110);
    cli.build();
    describe(&mut cli, "dovetail", &mut text);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        there == text,
        "docs/cli.md is out of date: run UPDATE_DOCS=1 cargo test -p dovetail --test reference"
    );
}

fn describe(command: &mut clap::Command, name: &str, text: &mut String) {
    let help = command.render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    text.push_str(&format!(
        "\n## {name}\n\n```text\n{}\n```\n",
        lines.join("\n").trim_end()
    ));
    for sub in command.get_subcommands_mut().filter(|s| s.get_name() != "help") {
        let name = format!("{name} {}", sub.get_name());
        describe(sub, &name, text);
    }
}
