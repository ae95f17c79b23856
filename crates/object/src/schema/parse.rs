//! Parses the data files of kinds: one line per field, see `crates/schemas/data/README.md`.
//!
//! Two passes: the first collects every type, so that fields in the second can refer to any of
//! them.

use std::collections::HashMap;
use std::sync::Arc;

use super::{
    Alternative, Embedded, FieldShape, FieldType, Merge, PatchStrategy, Presence, Struct,
    StructField, Union,
};
use crate::kind::{
    Column, Deprecated, KindData, KindRules, MetaCheck, MetaChecks, NameRule, ResourceScope,
    ScalePaths, Subresource,
};
use crate::names::GroupVersionKind;
use mizzen_value::Str;
use mizzen_value::json;

/// The kinds and types of the data files.
#[derive(Debug, Clone, Default)]
pub struct Schemas {
    /// The types by full name: `core/v1.PodSpec`.
    pub types: HashMap<Str, Arc<Struct>>,
    /// The kinds in file order.
    pub kinds: Vec<KindData>,
}

/// An invalid line.
#[derive(Debug, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct SchemaParseError {
    file: String,
    line: usize,
    problem: String,
}

/// Parses files, each with its name.
pub fn parse<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)> + Clone,
) -> Result<Schemas, SchemaParseError> {
    parse_with(HashMap::new(), files)
}

/// Like [`parse`], for files that refer to `types`, which are shared with the result.
pub fn parse_with<'a>(
    types: HashMap<Str, Arc<Struct>>,
    files: impl IntoIterator<Item = (&'a str, &'a str)> + Clone,
) -> Result<Schemas, SchemaParseError> {
    let mut schemas = Schemas {
        types,
        kinds: Vec::new(),
    };
    for (name, text) in files.clone() {
        each_line(name, text, |home, line| declare(&mut schemas, home, line))?;
    }
    let mut drafts = Drafts::default();
    for (name, text) in files {
        let mut block = OpenBlock::None;
        each_line(name, text, |home, line| {
            define(&mut schemas, &mut drafts, &mut block, home, line)
        })?;
        block.finish(&mut schemas, &mut drafts);
    }
    drafts.define_all(&schemas);
    Ok(schemas)
}

/// Structs before the fields of embedded structs are inlined.
#[derive(Default)]
struct Drafts(Vec<StructDraft>);

struct StructDraft {
    ty: Arc<Struct>,
    members: Vec<Member>,
}

enum Member {
    Field(Box<StructField>),
    Embedded(Embedded),
}

impl Drafts {
    /// Sets the fields of every struct, with those of embedded structs inlined.
    fn define_all(self, schemas: &Schemas) {
        let mut waiting: HashMap<Str, Vec<Member>> = self
            .0
            .into_iter()
            .map(|draft| (full_name(&draft.ty), draft.members))
            .collect();
        for ty in schemas.types.values() {
            define_struct(ty, &mut waiting);
        }
    }
}

fn full_name(ty: &Struct) -> Str {
    format!("{}.{}", ty.home, ty.name).into()
}

fn define_struct(ty: &Struct, waiting: &mut HashMap<Str, Vec<Member>>) {
    let Some(members) = waiting.remove(&full_name(ty)) else {
        return;
    };
    let (mut fields, mut embedded) = (Vec::new(), Vec::new());
    for member in members {
        match member {
            Member::Field(field) => fields.push(*field),
            Member::Embedded(inner) => {
                define_struct(&inner.message, waiting);
                let at = embedded.len();
                fields.extend(inner.message.fields().iter().map(|field| StructField {
                    embedded: Some(at),
                    ..field.clone()
                }));
                embedded.push(inner);
            }
        }
    }
    ty.define(fields, embedded);
}

/// The group, version and file of a line.
#[derive(Default, Clone)]
struct Home {
    group: Str,
    version: Str,
    path: Str,
}

struct DataLine<'a> {
    indented: bool,
    text: &'a str,
}

impl<'a> DataLine<'a> {
    fn word(&self) -> (&'a str, &'a str) {
        let (word, rest) = self.text.split_once(' ').unwrap_or((self.text, ""));
        (word, rest.trim())
    }
}

fn each_line(
    file: &str,
    text: &str,
    mut visit: impl FnMut(&Home, DataLine) -> Result<(), String>,
) -> Result<(), SchemaParseError> {
    let mut home = Home::default();
    for (number, raw) in text.lines().enumerate() {
        let line = DataLine {
            indented: raw.starts_with(' '),
            text: match raw.starts_with('#') {
                true => "",
                false => raw.split(" # ").next().unwrap_or(raw).trim(),
            },
        };
        let outcome = match line.word() {
            ("", _) => Ok(()),
            ("group", name) if !line.indented => {
                home.group = name.into();
                Ok(())
            }
            ("version", name) if !line.indented => {
                home.version = name.into();
                home.path = format!("{}/{name}", home.group).into();
                Ok(())
            }
            _ => visit(&home, line),
        };
        outcome.map_err(|problem| SchemaParseError {
            file: file.into(),
            line: number + 1,
            problem,
        })?;
    }
    Ok(())
}

fn declare(schemas: &mut Schemas, home: &Home, line: DataLine) -> Result<(), String> {
    if let (false, ("type", rest)) = (line.indented, line.word()) {
        let mut words = rest.split(' ');
        let name = words.next().unwrap_or_default();
        let atomic = words.clone().any(|word| word == "map=atomic");
        let ty = Arc::new(Struct::new(name, home.path.clone(), atomic));
        if let Some(text) = words.find_map(|word| word.strip_prefix("union=")) {
            let (discriminator, members) = text
                .split_once(':')
                .ok_or("a union is discriminator:members")?;
            ty.define_union(Union {
                discriminator: (!discriminator.is_empty()).then(|| discriminator.into()),
                members: members.split(',').map(Str::from).collect(),
            });
        }
        schemas
            .types
            .insert(format!("{}.{name}", home.path).into(), ty);
    }
    Ok(())
}

/// The block that is being parsed.
enum OpenBlock {
    None,
    Kind(Box<KindData>),
    Type(StructDraft),
}

impl OpenBlock {
    fn finish(&mut self, schemas: &mut Schemas, drafts: &mut Drafts) {
        match std::mem::replace(self, OpenBlock::None) {
            OpenBlock::None => {}
            OpenBlock::Kind(kind) => schemas.kinds.push(*kind),
            OpenBlock::Type(draft) => drafts.0.push(draft),
        }
    }
}

fn define(
    schemas: &mut Schemas,
    drafts: &mut Drafts,
    block: &mut OpenBlock,
    home: &Home,
    line: DataLine,
) -> Result<(), String> {
    if !line.indented {
        block.finish(schemas, drafts);
        *block = open(schemas, home, &line)?;
        return Ok(());
    }
    match block {
        OpenBlock::None => Err("a line that belongs to nothing".into()),
        OpenBlock::Kind(kind) => kind_line(kind, &line),
        OpenBlock::Type(draft) => {
            draft.members.push(member(schemas, home, line.text)?);
            Ok(())
        }
    }
}

fn open(schemas: &Schemas, home: &Home, line: &DataLine) -> Result<OpenBlock, String> {
    match line.word() {
        ("kind", name) => {
            let root = lookup(schemas, home, name)?;
            root.name_kind();
            Ok(OpenBlock::Kind(Box::new(KindData::new(
                gvk(&home.group, &home.version, name),
                root,
            ))))
        }
        ("type", rest) => {
            let name = rest.split(' ').next().unwrap_or_default();
            Ok(OpenBlock::Type(StructDraft {
                ty: lookup(schemas, home, name)?,
                members: Vec::new(),
            }))
        }
        (word, _) => Err(format!("unknown word {word:?}")),
    }
}

fn gvk(group: &str, version: &str, kind: &str) -> GroupVersionKind {
    let group = if matches!(group, "core" | "meta") {
        ""
    } else {
        group
    };
    GroupVersionKind {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
    }
}

fn lookup(schemas: &Schemas, home: &Home, name: &str) -> Result<Arc<Struct>, String> {
    let full = if name.contains('/') {
        name.to_string()
    } else {
        format!("{}.{name}", home.path)
    };
    schemas
        .types
        .get(full.as_str())
        .cloned()
        .ok_or_else(|| format!("no type {full}"))
}

fn kind_line(kind: &mut KindData, line: &DataLine) -> Result<(), String> {
    let (word, rest) = line.word();
    let words = || rest.split_whitespace().map(Str::from).collect::<Vec<_>>();
    match word {
        "names" => {
            let (plural, singular) = rest.split_once(' ').unwrap_or((rest, ""));
            (kind.plural, kind.singular) = (plural.into(), singular.trim().into());
        }
        "short" => kind.short_names = words(),
        "categories" => kind.categories = words(),
        "scope" => {
            kind.scope = if rest == "Cluster" {
                ResourceScope::Cluster
            } else {
                ResourceScope::Namespaced
            }
        }
        "verbs" => kind.verbs = words(),
        "unseen" => kind.hidden_annotations = words(),
        "resets" => kind.resets = Some(words()),
        "list" => kind.list_kind = Some(rest.into()),
        "selectable" => kind.selectable = words(),
        "deprecated" => kind.deprecated = Some(Deprecated::parse(rest)),
        "indexed" => kind.indexed = words(),
        "stored" => kind.stored = Some(full_kind(rest)?),
        "encoding" => kind.storage_encoding = Some(rest.into()),
        "ttl" => kind.rules.ttl = Some(rest.parse().map_err(|_| "ttl wants seconds")?),
        "name" => kind.rules.name = name_rule(rest)?,
        "metadata" => meta_checks(&mut kind.rules.meta_checks, rest)?,
        "rules" => rest
            .split_whitespace()
            .try_for_each(|rule| set_rule(&mut kind.rules, rule))?,
        "subresource" => kind.subresources.push(subresource(rest)?),
        "scale" => kind.scale = Some(scale(rest)?),
        "column" => kind.columns.push(Column::parse(rest)?),
        _ => return Err(format!("unknown word {word:?} in a kind")),
    }
    Ok(())
}

fn full_kind(text: &str) -> Result<GroupVersionKind, String> {
    let (path, kind) = text
        .rsplit_once('.')
        .ok_or_else(|| format!("{text:?} is no kind"))?;
    let (group, version) = path
        .split_once('/')
        .ok_or_else(|| format!("{text:?} has no version"))?;
    Ok(gvk(group, version, kind))
}

fn name_rule(text: &str) -> Result<NameRule, String> {
    Ok(match text {
        "subdomain" => NameRule::Subdomain,
        "label" => NameRule::Label,
        "label1035" => NameRule::Label1035,
        "long" => NameRule::LongName,
        "ip" => NameRule::Ip,
        "segment" => NameRule::PathSegment,
        "any" => NameRule::Any,
        _ => return Err(format!("unknown name rule {text:?}")),
    })
}

fn meta_checks(rules: &mut MetaChecks, text: &str) -> Result<(), String> {
    let (action, checks) = text
        .split_once(' ')
        .ok_or("metadata wants an action and checks")?;
    let slot = match action {
        "create" => &mut rules.create,
        "update" => &mut rules.update,
        "status" => &mut rules.status,
        _ => return Err(format!("unknown action {action:?}")),
    };
    let check = |word: &str| match word {
        "whole" => Ok(MetaCheck::Whole),
        "change" => Ok(MetaCheck::Change),
        _ => Err(format!("unknown check {word:?} of metadata")),
    };
    let words = checks.split_whitespace().filter(|word| *word != "none");
    *slot = Some(words.map(check).collect::<Result<_, _>>()?);
    Ok(())
}

fn set_rule(rules: &mut KindRules, rule: &str) -> Result<(), String> {
    let flag = match rule {
        "generation" => &mut rules.generation,
        "counts-annotations" => &mut rules.counts_annotations,
        "counts-labels" => &mut rules.counts_labels,
        "constant-generation" => &mut rules.constant_generation,
        "late-generation" => &mut rules.late_generation,
        "create-on-update" => &mut rules.create_on_update,
        "create-on-status-apply" => &mut rules.create_on_status_apply,
        "conditional-update" => &mut rules.conditional_update,
        "delete-answers-object" => &mut rules.delete_answers_object,
        "named-by-uuid" => &mut rules.named_by_uuid,
        "orphan-by-default" => &mut rules.orphan_by_default,
        "no-garbage-collection" => &mut rules.no_garbage_collection,
        "warns-of-orphans" => &mut rules.warns_of_orphans,
        "status-keeps-metadata" => &mut rules.status_keeps_metadata,
        "plain-metadata" => &mut rules.plain_metadata,
        "status-on-create" => &mut rules.status_on_create,
        _ => return Err(format!("unknown rule {rule:?}")),
    };
    *flag = true;
    Ok(())
}

fn subresource(text: &str) -> Result<Subresource, String> {
    let mut words = text.split_whitespace();
    let name = words.next().ok_or("a subresource has a name")?.into();
    let mut subresource = Subresource {
        name,
        verbs: Vec::new(),
        kind: None,
        resets: None,
    };
    for word in words {
        match word.split_once('=') {
            Some(("kind", kind)) => subresource.kind = Some(full_kind(kind)?),
            Some(("resets", fields)) => {
                subresource.resets = Some(fields.split(',').map(Str::from).collect())
            }
            Some(_) => return Err(format!("unknown attribute {word:?} of a subresource")),
            None => subresource.verbs.push(word.into()),
        }
    }
    Ok(subresource)
}

fn scale(text: &str) -> Result<ScalePaths, String> {
    let mut paths = text.split_whitespace().map(Str::from);
    let mut next = || paths.next().ok_or("scale wants three paths");
    Ok(ScalePaths {
        spec_replicas: next()?,
        status_replicas: next()?,
        label_selector: next()?,
    })
}

fn member(schemas: &Schemas, home: &Home, text: &str) -> Result<Member, String> {
    let mut words = text.split_whitespace();
    let tag = match words.next().unwrap_or_default() {
        "-" => 0,
        number => number
            .parse()
            .map_err(|_| format!("{number:?} is no protobuf number"))?,
    };
    let name = words.next().ok_or("a field has a name")?;
    let ty = words.next().ok_or("a field has a type")?;
    if name == "..." {
        let message = lookup(schemas, home, ty.trim_start_matches('?'))?;
        return Ok(Member::Embedded(Embedded { tag, message }));
    }
    let (presence, ty) = presence(ty);
    let mut field = StructField {
        name: name.into(),
        ty: parse_type(schemas, home, ty)?,
        tag,
        presence,
        required: false,
        default: None,
        merge: Merge::Unsaid,
        patch: PatchStrategy::default(),
        embedded: None,
    };
    words.try_for_each(|word| attribute(&mut field, home, word))?;
    Ok(Member::Field(Box::new(field)))
}

fn presence(ty: &str) -> (Presence, &str) {
    match ty.split_at(1) {
        ("?", ty) => (Presence::Set, ty),
        ("!", ty) => (Presence::Always, ty),
        ("~", ty) => (Presence::Nullable, ty),
        _ => (Presence::NotEmpty, ty),
    }
}

fn attribute(field: &mut StructField, home: &Home, word: &str) -> Result<(), String> {
    let (word, value) = word.split_once('=').unwrap_or((word, ""));
    match word {
        "required" => field.required = true,
        "default" => {
            field.default = Some(json::parse(value.as_bytes()).map_err(|error| error.to_string())?)
        }
        "list" | "map" => field.merge = merge(value)?,
        "key" => field.patch.key = Some(value.into()),
        "patch" => {
            for strategy in value.split(',') {
                match strategy {
                    "merge" => field.patch.merge = true,
                    "retainKeys" => field.patch.retain_keys = true,
                    "replace" => field.patch.replace = true,
                    _ => return Err(format!("unknown patch strategy {strategy:?}")),
                }
            }
        }
        // A named list or map type; in a map of lists the list has the name.
        "go" => {
            let name = go_name(home, value);
            match &mut field.ty.shape {
                FieldShape::Map(item) if matches!(item.shape, FieldShape::List(_)) => {
                    field.ty.go = format!("map[string]{name}").into();
                    item.go = name;
                }
                _ => field.ty.go = name,
            }
        }
        _ => return Err(format!("unknown attribute {word:?}")),
    }
    Ok(())
}

fn merge(text: &str) -> Result<Merge, String> {
    Ok(match text {
        "atomic" => Merge::Atomic,
        "set" => Merge::Set,
        "granular" => Merge::Granular,
        _ => match text
            .strip_prefix("map(")
            .and_then(|keys| keys.strip_suffix(')'))
        {
            Some(keys) => Merge::Keyed(keys.split(',').map(Str::from).collect()),
            None => return Err(format!("unknown list type {text:?}")),
        },
    })
}

fn go_name(home: &Home, name: &str) -> Str {
    if name.contains('.') {
        name.into()
    } else {
        format!("{}.{name}", home.version).into()
    }
}

fn parse_type(schemas: &Schemas, home: &Home, text: &str) -> Result<FieldType, String> {
    if let Some(item) = text.strip_prefix("[]") {
        let item = parse_type(schemas, home, item.trim_start_matches('?'))?;
        let go = format!("[]{}", item.go).into();
        return Ok(FieldType {
            shape: FieldShape::List(Box::new(item)),
            go,
        });
    }
    if let Some(rest) = text.strip_prefix("map[") {
        let (key, item) = rest.split_once(']').ok_or("a map has a key type")?;
        let item = parse_type(schemas, home, item.trim_start_matches('?'))?;
        let key = match key
            .strip_prefix("string(")
            .and_then(|name| name.strip_suffix(')'))
        {
            Some(name) => go_name(home, name),
            None => key.into(),
        };
        let go = format!("map[{key}]{}", item.go).into();
        return Ok(FieldType {
            shape: FieldShape::Map(Box::new(item)),
            go,
        });
    }
    let (base, name) = match text.split_once('(') {
        Some((base, name)) => (base, Some(name.trim_end_matches(')'))),
        None => (text, None),
    };
    let (shape, go): (FieldShape, Str) = match base {
        "bool" => (FieldShape::Bool, "bool".into()),
        "int32" => (FieldShape::Int32, "int32".into()),
        "int64" => (FieldShape::Int64, "int64".into()),
        "float64" => (FieldShape::Float, "float64".into()),
        "string" => (FieldShape::String, "string".into()),
        "bytes" => (FieldShape::Bytes, "[]uint8".into()),
        "Time" => (FieldShape::Time, "v1.Time".into()),
        "MicroTime" => (FieldShape::MicroTime, "v1.MicroTime".into()),
        "Duration" => (FieldShape::Duration, "v1.Duration".into()),
        "Quantity" => (FieldShape::Quantity, "resource.Quantity".into()),
        "IntOrString" => (FieldShape::IntOrString, "intstr.IntOrString".into()),
        "RawExtension" => (FieldShape::Raw, "runtime.RawExtension".into()),
        "FieldsV1" => (FieldShape::Raw, "v1.FieldsV1".into()),
        "JSON" => (FieldShape::Json, "v1.JSON".into()),
        "JSONSchemaPropsOrBool" => schema_or(schemas, home, base, Alternative::Bool)?,
        "JSONSchemaPropsOrArray" => schema_or(schemas, home, base, Alternative::List)?,
        "JSONSchemaPropsOrStringArray" => schema_or(schemas, home, base, Alternative::Strings)?,
        _ => {
            let inner = lookup(schemas, home, text)?;
            let go = format!("{}.{}", inner.package(), inner.name).into();
            (FieldShape::Struct(inner), go)
        }
    };
    Ok(FieldType {
        shape,
        go: name.map_or(go, |name| go_name(home, name)),
    })
}

fn schema_or(
    schemas: &Schemas,
    home: &Home,
    name: &str,
    or: Alternative,
) -> Result<(FieldShape, Str), String> {
    let inner = lookup(schemas, home, "JSONSchemaProps")?;
    Ok((FieldShape::Or(or, inner), go_name(home, name)))
}
