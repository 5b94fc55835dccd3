//! The tree of a YAML file, its keys in the order they were written in: the first role of a job is the first one.

use std::fmt;

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap as _, SerializeSeq as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value of a YAML file.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// Nothing.
    Null,
    /// True or false.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// Another number.
    Number(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// Keys with values, in the order of the file.
    Keys(Vec<(String, Node)>),
}

impl Node {
    /// The value under a key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match self {
            Self::Keys(keys) => keys.iter().find(|(k, _)| k == key).map(|(_, node)| node),
            _ => None,
        }
    }

    /// The text of a single value as a template shows it; none for lists, keys and nothing.
    pub fn shown(&self) -> Option<String> {
        match self {
            Self::Flag(flag) => Some(flag.to_string()),
            Self::Whole(number) => Some(number.to_string()),
            Self::Number(number) => Some(number.to_string()),
            Self::Text(text) => Some(text.clone()),
            Self::Null | Self::List(_) | Self::Keys(_) => None,
        }
    }

    /// What it is, for an error: the value if it is short, else its kind.
    pub(crate) fn found(&self) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Text(text) if text.chars().count() <= 60 => format!("{text:?}"),
            Self::Text(_) => "a long text".to_owned(),
            Self::List(_) => "a list".to_owned(),
            Self::Keys(_) => "keys with values".to_owned(),
            Self::Flag(_) | Self::Whole(_) | Self::Number(_) => self.shown().unwrap_or_default(),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyNode)
    }
}

struct AnyNode;

impl<'de> Visitor<'de> for AnyNode {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of YAML")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Node, E> {
        Ok(Node::Flag(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Whole(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node, E> {
        Ok(i64::try_from(number).map_or(Node::Number(number as f64), Node::Whole))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Node, E> {
        Ok(Node::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut keys: Vec<(String, Node)> = Vec::new();
        while let Some((key, value)) = entries.next_entry::<Node, Node>()? {
            let key = key
                .shown()
                .ok_or_else(|| A::Error::custom("a key must be text, not a list or keys with values"))?;
            keys.push((key, value));
        }
        Ok(Node::Keys(keys))
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::Whole(number) => serializer.serialize_i64(*number),
            Self::Number(number) => serializer.serialize_f64(*number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(list) => {
                let mut seq = serializer.serialize_seq(Some(list.len()))?;
                for item in list {
                    seq.serialize_element(item)?;
                }
                seq.end()
            }
            Self::Keys(keys) => {
                let mut map = serializer.serialize_map(Some(keys.len()))?;
                for (key, value) in keys {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}
