//! Walking through the tree: what is wrong is written down and the walk goes on.

use super::{Mode, hint};
use crate::node::Node;
use crate::remark::Remark;

/// A value and the way to it from the top of the file.
#[derive(Debug, Clone)]
pub(super) struct At<'a> {
    pub(super) path: String,
    pub(super) key: String,
    pub(super) node: &'a Node,
}

impl<'a> At<'a> {
    /// What is below a key; this very value where nothing is, with the path of the key.
    pub(super) fn at(&self, key: &str) -> At<'a> {
        let dot = if self.path.is_empty() { "" } else { "." };
        At {
            path: format!("{}{dot}{key}", self.path),
            key: key.to_owned(),
            node: self.node.get(key).unwrap_or(&Node::Null),
        }
    }

    /// What is below a key, if anything is.
    fn present(&self, key: &str) -> Option<At<'a>> {
        let below = self.at(key);
        (*below.node != Node::Null).then_some(below)
    }
}

/// What was found so far.
#[derive(Debug)]
pub(super) struct Reader {
    mode: Mode,
    pub(super) faults: Vec<Remark>,
    pub(super) remarks: Vec<Remark>,
}

impl Reader {
    pub(super) fn new(mode: Mode) -> Self {
        Self {
            mode,
            faults: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// Something is wrong, in either mode.
    pub(super) fn fault(&mut self, at: &At<'_>, what: impl Into<String>) {
        self.faults.push(Remark::new(at.path.clone(), what));
    }

    /// Something else is expected here.
    pub(super) fn expected(&mut self, at: &At<'_>, expected: &str) {
        self.fault(at, format!("found {}, expected {expected}", at.node.found()));
    }

    /// Something the job does without: a fault, or, leniently, a remark on what becomes of it.
    pub(super) fn doubtful(&mut self, remark: Remark, otherwise: &str) {
        match self.mode {
            Mode::Strict => self.faults.push(remark),
            Mode::Lenient => {
                let what = format!("{}; {otherwise}", remark.what);
                self.remarks.push(Remark::new(remark.path, what));
            }
        }
    }

    /// Something is left out, in either mode.
    pub(super) fn ignored(&mut self, at: &At<'_>, what: impl Into<String>) {
        self.remarks.push(Remark::new(at.path.clone(), what));
    }

    /// A name that nothing has.
    pub(super) fn unknown_name<'n>(
        &mut self,
        at: &At<'_>,
        name: &str,
        what: &str,
        known: impl Iterator<Item = &'n str> + Clone,
    ) {
        let listed: Vec<&str> = known.clone().collect();
        let near = hint(name, known);
        let listed = if listed.is_empty() {
            "there are none".to_owned()
        } else {
            format!("known are {}", listed.join(", "))
        };
        self.fault(at, format!("there is no {what} {name}{near}; {listed}"));
    }

    /// Only these keys are known here.
    pub(super) fn only(&mut self, at: &At<'_>, known: &[&str]) {
        let Node::Keys(keys) = at.node else { return };
        for (i, (key, _)) in keys.iter().enumerate() {
            if keys[..i].iter().any(|(k, _)| k == key) {
                self.fault(&at.at(key), "is there twice");
            }
            if !known.contains(&key.as_str()) {
                let near = hint(key, known.iter().copied());
                let what = format!("unknown key{near}; known are {}", known.join(", "));
                self.doubtful(Remark::new(at.at(key).path, what), "ignored");
            }
        }
    }

    /// Whether it is keys with values, and only these.
    pub(super) fn is_keys(&mut self, at: &At<'_>, known: &[&str]) -> bool {
        if !matches!(at.node, Node::Keys(_)) {
            self.expected(at, &format!("some of {}", known.join(", ")));
            return false;
        }
        self.only(at, known);
        true
    }

    /// Keys with values under a key, and only these.
    pub(super) fn keys<'a>(&mut self, at: &At<'a>, key: &str, known: &[&str]) -> Option<At<'a>> {
        let below = at.present(key)?;
        self.is_keys(&below, known).then_some(below)
    }

    /// Keys with values under a key, whatever they are.
    pub(super) fn free_keys(&mut self, at: &At<'_>, key: &str) -> Node {
        match at.present(key) {
            None => Node::Null,
            Some(below) if matches!(below.node, Node::Keys(_)) => below.node.clone(),
            Some(below) => {
                self.expected(&below, "names with values");
                Node::Null
            }
        }
    }

    /// All keys below a key with what is below them.
    pub(super) fn entries<'a>(&mut self, at: &At<'a>, key: &str) -> Vec<At<'a>> {
        let Some(below) = at.present(key) else {
            return Vec::new();
        };
        let Node::Keys(keys) = below.node else {
            self.expected(&below, "names with values");
            return Vec::new();
        };
        keys.iter().map(|(key, _)| below.at(key)).collect()
    }

    /// The items of a list under a key; none where there is nothing.
    pub(super) fn list<'a>(&mut self, at: &At<'a>, key: &str) -> Vec<At<'a>> {
        let Some(below) = at.present(key) else {
            return Vec::new();
        };
        let Node::List(list) = below.node else {
            self.expected(&below, "a list");
            return Vec::new();
        };
        let item = |(i, node): (usize, _)| At {
            path: format!("{}[{i}]", below.path),
            key: i.to_string(),
            node,
        };
        list.iter().enumerate().map(item).collect()
    }

    /// A list of texts.
    pub(super) fn texts(&mut self, at: &At<'_>, key: &str) -> Vec<String> {
        let items = self.list(at, key);
        items.iter().filter_map(|item| self.as_text(item)).collect()
    }

    /// A list of lines for the shell: numbers and flags count as they are written.
    pub(super) fn lines(&mut self, at: &At<'_>, key: &str) -> Vec<String> {
        let items = self.list(at, key);
        let lines = items.iter().filter_map(|item| {
            let shown = item.node.shown();
            if shown.is_none() {
                self.expected(item, "a line for the shell");
            }
            shown
        });
        lines.collect()
    }

    pub(super) fn as_text(&mut self, at: &At<'_>) -> Option<String> {
        match at.node {
            Node::Text(text) => Some(text.clone()),
            _ => {
                self.expected(at, "text");
                None
            }
        }
    }

    /// Text under a key.
    pub(super) fn text(&mut self, at: &At<'_>, key: &str) -> Option<String> {
        let below = at.present(key)?;
        self.as_text(&below)
    }

    /// Text or a number under a key.
    pub(super) fn text_or_number(&mut self, at: &At<'_>, key: &str) -> Option<String> {
        let below = at.present(key)?;
        match below.node {
            Node::Whole(number) => Some(number.to_string()),
            Node::Number(number) => Some(format!("{number:?}")),
            _ => self.as_text(&below),
        }
    }

    /// True or false under a key.
    pub(super) fn flag(&mut self, at: &At<'_>, key: &str) -> Option<bool> {
        let below = at.present(key)?;
        match below.node {
            Node::Flag(flag) => Some(*flag),
            _ => {
                self.expected(&below, "true or false");
                None
            }
        }
    }

    /// A whole number under a key.
    pub(super) fn whole(&mut self, at: &At<'_>, key: &str, least: i64, most: i64) -> Option<i64> {
        let below = at.present(key)?;
        match below.node {
            Node::Whole(number) if (least..=most).contains(number) => Some(*number),
            _ => {
                self.expected(&below, &format!("a whole number from {least} to {most}"));
                None
            }
        }
    }

    /// What has to be there.
    pub(super) fn required<'a>(&mut self, at: &At<'a>, key: &str, what: &str) -> Option<At<'a>> {
        let present = at.present(key);
        if present.is_none() {
            self.fault(&at.at(key), format!("is missing; expected {what}"));
        }
        present
    }

    /// Text that has to be there.
    pub(super) fn required_text(&mut self, at: &At<'_>, key: &str, what: &str) -> Option<String> {
        let below = self.required(at, key, what)?;
        self.as_text(&below)
    }

    /// The version of the protocol.
    pub(super) fn protocol_version(&mut self, at: &At<'_>, needed: bool) {
        let found = if needed {
            self.required(at, "protocolVersion", "2")
        } else {
            at.present("protocolVersion")
        };
        if let Some(version) = found
            && version.node.shown().as_deref() != Some("2")
        {
            self.expected(&version, "2, the version of the protocol");
        }
    }
}
