//! The constructor: nodes become a value. Resolves scalars, follows aliases, merges maps, and makes
//! keys strings.

use std::collections::HashSet;

use super::compose::{NodeContent, NodeTree, Scalar};
use super::scalar::{Meaning, float_text, is_timestamp, resolve};
use super::{Result, YamlDocument, YamlError};
use crate::go_base64;
use crate::json;
use crate::{Map, Str, Value};

/// The value of a document.
pub(super) fn construct(tree: &NodeTree) -> Result<YamlDocument> {
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
    Ok(YamlDocument { value, complaint })
}

/// The maximum number of reported complaints.
const MAX_COMPLAINTS: usize = 100;

struct Constructor<'a> {
    tree: &'a NodeTree,
    /// The aliases that are being expanded.
    followed: Vec<usize>,
    n_nodes: usize,
    n_from_aliases: usize,
    complaints: Vec<String>,
    /// A value that JSON cannot express; reported only if there is no YAML error.
    postponed: Option<YamlError>,
}

/// The members of a map, and its keys before they become strings: `1` and `"1"` are two keys.
#[derive(Default)]
struct Members {
    map: Map,
    keys: HashSet<YamlKey>,
}

#[derive(PartialEq, Eq, Hash)]
enum YamlKey {
    Null,
    Bool(bool),
    Int(i64),
    Unsigned(u64),
    Float(u64),
    Text(Str),
}

impl<'a> Constructor<'a> {
    fn new(tree: &'a NodeTree) -> Constructor<'a> {
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
            NodeContent::Scalar(scalar) => {
                let meaning = meaning(scalar)?;
                self.scalar_value(scalar, meaning)
            }
            NodeContent::List(items) => items
                .iter()
                .map(|item| self.value(*item))
                .collect::<Result<Vec<_>, _>>()
                .map(Value::List),
            NodeContent::Map(pairs) => {
                let mut members = Members::default();
                self.fill(pairs, &mut members)?;
                members.map.sort();
                Ok(members.map.into())
            }
            NodeContent::Alias(name, target) => {
                self.follow(index, name)?;
                let value = self.value(*target)?;
                self.followed.pop();
                Ok(value)
            }
        }
    }

    /// Kubernetes: the limits on alias expansion are go-yaml's (decode.go).
    fn count(&mut self) -> Result<()> {
        self.n_nodes += 1;
        self.n_from_aliases += usize::from(!self.followed.is_empty());
        let share = self.n_from_aliases as f64 / self.n_nodes as f64;
        // The allowed share: nearly all nodes of a small document, hardly any of a large one.
        const SMALL: f64 = 400_000.0;
        const LARGE: f64 = 4_000_000.0;
        let position = ((self.n_nodes as f64 - SMALL) / (LARGE - SMALL)).clamp(0.0, 1.0);
        let allowed = 0.99 - 0.89 * position;
        if self.n_from_aliases > 100 && self.n_nodes > 1000 && share > allowed {
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
            NodeContent::Scalar(scalar) => {
                let tag = scalar.tag.as_deref();
                scalar.text == "<<" && (scalar.is_plain || tag == Some("tag:yaml.org,2002:merge"))
            }
            _ => false,
        }
    }

    /// Merges one map or several (`<<`), of which the first takes precedence.
    fn merge(&mut self, index: usize, members: &mut Members) -> Result<()> {
        match &self.tree.node(index).content {
            NodeContent::List(items) => items
                .iter()
                .rev()
                .try_for_each(|item| self.merge_map(*item, members)),
            _ => self.merge_map(index, members),
        }
    }

    fn merge_map(&mut self, index: usize, members: &mut Members) -> Result<()> {
        self.count()?;
        match &self.tree.node(index).content {
            NodeContent::Map(pairs) => self.fill(pairs, members),
            NodeContent::Alias(name, target) => {
                self.follow(index, name)?;
                match &self.tree.node(*target).content {
                    NodeContent::Map(pairs) => {
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

    fn key(&mut self, index: usize) -> Result<YamlKey> {
        let target = match &self.tree.node(index).content {
            NodeContent::Alias(_, target) => *target,
            _ => index,
        };
        let NodeContent::Scalar(scalar) = &self.tree.node(target).content else {
            return Err(YamlError::Key(go_syntax(&self.value(index)?)).into());
        };
        self.count()?;
        Ok(match meaning(scalar)? {
            Meaning::Null => YamlKey::Null,
            Meaning::Bool(truth) => YamlKey::Bool(truth),
            Meaning::Int(int) => YamlKey::Int(int),
            Meaning::Unsigned(number) => YamlKey::Unsigned(number),
            Meaning::Float(float) => YamlKey::Float(float.to_bits()),
            Meaning::Timestamp | Meaning::Text => YamlKey::Text(text(scalar)?),
        })
    }

    fn set(&mut self, key: YamlKey, value: Value, line: usize, members: &mut Members) {
        let name = match &key {
            YamlKey::Text(text) => text.clone(),
            YamlKey::Bool(truth) => truth.to_string().into(),
            YamlKey::Int(int) => int.to_string().into(),
            YamlKey::Float(bits) => float_text(f64::from_bits(*bits), true).into(),
            YamlKey::Null | YamlKey::Unsigned(_) => {
                self.postpone(key.unsupported(&value));
                return;
            }
        };
        members.map.insert(name, value);
        if members.keys.contains(&key) && self.complaints.len() < MAX_COMPLAINTS {
            self.complaints.push(format!(
                "line {line}: key {} already set in map",
                key.go_syntax()
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

/// The text of a scalar; decoded if it is tagged as binary.
fn text(scalar: &Scalar) -> Result<Str> {
    if scalar.tag.as_deref() != Some("tag:yaml.org,2002:binary") {
        return Ok(scalar.text.as_str().into());
    }
    let bytes = go_base64::decode(&scalar.text).map_err(|_| YamlError::Binary)?;
    Ok(String::from_utf8_lossy(&bytes).into())
}

impl YamlKey {
    /// The error for a key that JSON cannot express.
    fn unsupported(&self, value: &Value) -> YamlError {
        let (ty, key) = match self {
            YamlKey::Unsigned(number) => ("uint64", format!("{number:#x}")),
            _ => ("%!s(<nil>)", "<nil>".into()),
        };
        let value = if value.is_null() {
            "<nil>".into()
        } else {
            go_syntax(value)
        };
        YamlError::UnsupportedKey { ty, key, value }
    }

    /// The key as Go's `%#v` prints it.
    fn go_syntax(&self) -> String {
        match self {
            YamlKey::Null => "<nil>".into(),
            YamlKey::Bool(truth) => truth.to_string(),
            YamlKey::Int(int) => int.to_string(),
            YamlKey::Unsigned(number) => format!("{number:#x}"),
            YamlKey::Float(bits) => float_text(f64::from_bits(*bits), false),
            YamlKey::Text(text) => json::quote(text),
        }
    }
}

/// A value as Go's `%#v` prints it.
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
