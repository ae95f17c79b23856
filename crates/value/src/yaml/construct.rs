//! From nodes to a value: scalars resolved, aliases followed, maps merged, keys made text.

use std::collections::HashSet;

use super::compose::{Content, Scalar, Tree};
use super::scalar::{Meaning, float_text, is_timestamp, resolve};
use super::{Document, Result, YamlError};
use crate::go_base64;
use crate::json;
use crate::{Map, Str, Value};

/// The value that a document is.
pub(super) fn construct(tree: &Tree) -> Result<Document> {
    let mut constructor = Constructor::new(tree);
    // Upstream counts the document as a node too.
    constructor.count()?;
    let value = constructor.value(tree.root)?;
    if let Some(error) = constructor.postponed {
        return Err(error.into());
    }
    let complaints = constructor.complaints;
    let complaint = (!complaints.is_empty())
        .then(|| format!("yaml: unmarshal errors:\n  {}", complaints.join("\n  ")));
    Ok(Document { value, complaint })
}

/// The most complaints that are kept.
const MAX_COMPLAINTS: usize = 100;

struct Constructor<'a> {
    tree: &'a Tree,
    /// The aliases that are being followed.
    followed: Vec<usize>,
    n_nodes: usize,
    n_from_aliases: usize,
    complaints: Vec<String>,
    /// What JSON cannot say, which matters only if YAML has nothing to complain of.
    postponed: Option<YamlError>,
}

/// A map's members, and the keys that it has. Before they become text, `1` and `"1"` are two.
#[derive(Default)]
struct Members {
    map: Map,
    keys: HashSet<Key>,
}

#[derive(PartialEq, Eq, Hash)]
enum Key {
    Null,
    Bool(bool),
    Int(i64),
    Unsigned(u64),
    Float(u64),
    Text(Str),
}

impl<'a> Constructor<'a> {
    fn new(tree: &'a Tree) -> Constructor<'a> {
        Constructor {
            tree,
            followed: Vec::new(),
            n_nodes: 0,
            n_from_aliases: 0,
            complaints: Vec::new(),
            postponed: None,
        }
    }

    fn value(&mut self, index: usize) -> Result<Value> {
        self.count()?;
        match &self.tree.node(index).content {
            Content::Scalar(scalar) => {
                let meaning = meaning(scalar)?;
                self.scalar_value(scalar, meaning)
            }
            Content::List(items) => items
                .iter()
                .map(|item| self.value(*item))
                .collect::<Result<Vec<_>, _>>()
                .map(Value::List),
            Content::Map(pairs) => {
                let mut members = Members::default();
                self.fill(pairs, &mut members)?;
                members.map.sort();
                Ok(members.map.into())
            }
            Content::Alias(name, target) => {
                self.follow(index, name)?;
                let value = self.value(*target)?;
                self.followed.pop();
                Ok(value)
            }
        }
    }

    /// Kubernetes: the bounds on what aliases may contribute are go-yaml's (decode.go).
    fn count(&mut self) -> Result<()> {
        self.n_nodes += 1;
        self.n_from_aliases += usize::from(!self.followed.is_empty());
        let share = self.n_from_aliases as f64 / self.n_nodes as f64;
        if self.n_from_aliases > 100 && self.n_nodes > 1000 && share > allowed_share(self.n_nodes) {
            return Err(YamlError::Aliases.into());
        }
        Ok(())
    }

    fn follow(&mut self, alias: usize, name: &str) -> Result<()> {
        if self.followed.contains(&alias) {
            return Err(YamlError::Recursion(name.into()).into());
        }
        self.followed.push(alias);
        Ok(())
    }

    fn fill(&mut self, pairs: &[(usize, usize)], members: &mut Members) -> Result<()> {
        for (key, value) in pairs {
            if self.is_merge(*key) {
                self.merge(*value, members)?;
                continue;
            }
            let key_value = self.key(*key)?;
            let line = self.tree.node(*value).line;
            let value = self.value(*value)?;
            self.set(key_value, value, line, members);
        }
        Ok(())
    }

    fn is_merge(&self, key: usize) -> bool {
        match &self.tree.node(key).content {
            Content::Scalar(scalar) => {
                let tag = scalar.tag.as_deref();
                scalar.text == "<<" && (scalar.is_plain || tag == Some("tag:yaml.org,2002:merge"))
            }
            _ => false,
        }
    }

    /// Takes over the members of one map or of several, of which the first counts most.
    fn merge(&mut self, index: usize, members: &mut Members) -> Result<()> {
        match &self.tree.node(index).content {
            Content::List(items) => items
                .iter()
                .rev()
                .try_for_each(|item| self.merge_map(*item, members)),
            _ => self.merge_map(index, members),
        }
    }

    fn merge_map(&mut self, index: usize, members: &mut Members) -> Result<()> {
        self.count()?;
        match &self.tree.node(index).content {
            Content::Map(pairs) => self.fill(pairs, members),
            Content::Alias(name, target) => {
                self.follow(index, name)?;
                match &self.tree.node(*target).content {
                    Content::Map(pairs) => {
                        self.count()?;
                        self.fill(pairs, members)?;
                    }
                    _ => return Err(YamlError::Merge.into()),
                }
                self.followed.pop();
                Ok(())
            }
            _ => Err(YamlError::Merge.into()),
        }
    }

    fn key(&mut self, index: usize) -> Result<Key> {
        let target = match &self.tree.node(index).content {
            Content::Alias(_, target) => *target,
            _ => index,
        };
        let Content::Scalar(scalar) = &self.tree.node(target).content else {
            return Err(YamlError::Key(go_syntax(&self.value(index)?)).into());
        };
        self.count()?;
        Ok(match meaning(scalar)? {
            Meaning::Null => Key::Null,
            Meaning::Bool(truth) => Key::Bool(truth),
            Meaning::Int(int) => Key::Int(int),
            Meaning::Unsigned(number) => Key::Unsigned(number),
            Meaning::Float(float) => Key::Float(float.to_bits()),
            Meaning::Timestamp | Meaning::Text => Key::Text(text(scalar)?),
        })
    }

    fn set(&mut self, key: Key, value: Value, line: usize, members: &mut Members) {
        let name = match &key {
            Key::Text(text) => text.clone(),
            Key::Bool(truth) => truth.to_string().into(),
            Key::Int(int) => int.to_string().into(),
            Key::Float(bits) => float_text(f64::from_bits(*bits), true).into(),
            Key::Null | Key::Unsigned(_) => {
                self.postpone(unsupported(&key, &value));
                return;
            }
        };
        members.map.insert(name, value);
        if members.keys.contains(&key) && self.complaints.len() < MAX_COMPLAINTS {
            self.complaints.push(format!(
                "line {line}: key {} already set in map",
                go_key(&key)
            ));
        }
        members.keys.insert(key);
    }

    fn scalar_value(&mut self, scalar: &Scalar, meaning: Meaning) -> Result<Value> {
        Ok(match meaning {
            Meaning::Null => Value::Null,
            Meaning::Bool(truth) => truth.into(),
            Meaning::Int(int) => int.into(),
            Meaning::Unsigned(number) => Value::Number(number.to_string().into()),
            Meaning::Float(float) if float.is_finite() => json::number(&json::write_number(float)),
            Meaning::Float(float) => {
                self.postpone(YamlError::Number(match float {
                    f64::INFINITY => "+Inf",
                    f64::NEG_INFINITY => "-Inf",
                    _ => "NaN",
                }));
                Value::Null
            }
            Meaning::Timestamp | Meaning::Text => text(scalar)?.into(),
        })
    }

    fn postpone(&mut self, error: YamlError) {
        self.postponed.get_or_insert(error);
    }
}

/// Of small documents nearly all may come from aliases, of large ones hardly anything.
fn allowed_share(n_nodes: usize) -> f64 {
    const SMALL: f64 = 400_000.0;
    const LARGE: f64 = 4_000_000.0;
    let position = ((n_nodes as f64 - SMALL) / (LARGE - SMALL)).clamp(0.0, 1.0);
    0.99 - 0.89 * position
}

const STANDARD_TAG: &str = "tag:yaml.org,2002:";

fn meaning(scalar: &Scalar) -> Result<Meaning> {
    let wanted = match &scalar.tag {
        None if scalar.is_plain => return Ok(resolve(&scalar.text)),
        None => return Ok(Meaning::Text),
        Some(tag) => match tag.strip_prefix(STANDARD_TAG) {
            Some(name @ ("bool" | "int" | "float" | "null" | "timestamp")) => format!("!!{name}"),
            _ => return Ok(Meaning::Text),
        },
    };
    match resolve(&scalar.text) {
        Meaning::Timestamp if wanted != "!!timestamp" => refuse(scalar, Meaning::Text, wanted),
        Meaning::Int(int) if wanted == "!!float" => Ok(Meaning::Float(int as f64)),
        meaning if meaning.tag() == wanted => Ok(meaning),
        _ if wanted == "!!timestamp" && is_timestamp(&scalar.text) => Ok(Meaning::Timestamp),
        meaning => refuse(scalar, meaning, wanted),
    }
}

fn refuse(scalar: &Scalar, meaning: Meaning, wanted: String) -> Result<Meaning> {
    Err(YamlError::Tag {
        found: meaning.tag(),
        text: scalar.text.clone(),
        wanted,
    }
    .into())
}

/// A scalar's text; if it is tagged as binary, the text that it encodes.
fn text(scalar: &Scalar) -> Result<Str> {
    if scalar.tag.as_deref() != Some("tag:yaml.org,2002:binary") {
        return Ok(scalar.text.as_str().into());
    }
    let bytes = go_base64::decode(&scalar.text).map_err(|_| YamlError::Binary)?;
    Ok(String::from_utf8_lossy(&bytes).into())
}

fn unsupported(key: &Key, value: &Value) -> YamlError {
    let (ty, key) = match key {
        Key::Unsigned(number) => ("uint64", format!("{number:#x}")),
        _ => ("%!s(<nil>)", "<nil>".into()),
    };
    let value = if value.is_null() {
        "<nil>".into()
    } else {
        go_syntax(value)
    };
    YamlError::UnsupportedKey { ty, key, value }
}

fn go_key(key: &Key) -> String {
    match key {
        Key::Null => "<nil>".into(),
        Key::Bool(truth) => truth.to_string(),
        Key::Int(int) => int.to_string(),
        Key::Unsigned(number) => format!("{number:#x}"),
        Key::Float(bits) => float_text(f64::from_bits(*bits), false),
        Key::Text(text) => json::quote(text),
    }
}

/// A value as Go's `%#v` shows it, which some messages do.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".into(),
        Value::String(text) => json::quote(text),
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Map(map) => {
            let members: Vec<_> = map
                .iter()
                .map(|(key, value)| format!("{}:{}", json::quote(key), go_syntax(value)))
                .collect();
            format!(
                "map[interface {{}}]interface {{}}{{{}}}",
                members.join(", ")
            )
        }
        other => json::to_string(other),
    }
}
