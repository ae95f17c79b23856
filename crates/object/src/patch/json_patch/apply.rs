//! The application of operations, with the errors of upstream's library (`evanphx/json-patch`,
//! version 4).
//!
//! Kubernetes: it is more lenient than RFC 6902. A missing member may be replaced, and copied as
//! null; the text of a pointer before the first slash is ignored; negative indexes count from the
//! end.

use std::collections::BTreeSet;

use super::{JsonPatchError, PatchOperation};
use mizzen_value::json;
use mizzen_value::{Map, Value};

/// The maximum number of bytes that the copies of one patch may add.
const MAX_COPIED: usize = 3 * 1024 * 1024;

const MISSING: &str = "missing value";

/// Applies all operations, or returns the error of the first that fails.
pub(super) fn apply(
    operations: &[PatchOperation],
    target: &mut Value,
) -> Result<(), JsonPatchError> {
    let mut run = PatchRun {
        target,
        copied: 0,
        put: BTreeSet::new(),
        opened: BTreeSet::from([String::new()]),
    };
    operations
        .iter()
        .try_for_each(|operation| run.step(operation))
        .map_err(JsonPatchError::Failed)?;
    run.sort_opened();
    Ok(())
}

struct PatchRun<'a> {
    target: &'a mut Value,
    /// The number of copied bytes.
    copied: usize,
    /// The pointers of values that come from the patch, and keep its spelling.
    put: BTreeSet<String>,
    /// The pointers of maps and lists that were traversed: they are sorted afterwards.
    opened: BTreeSet<String>,
}

impl PatchRun<'_> {
    fn step(&mut self, operation: &PatchOperation) -> Result<(), String> {
        let op = operation.op.as_deref().unwrap_or("unknown");
        match op {
            "add" => self.add(operation),
            "remove" => self.remove(operation),
            "replace" => self.replace(operation),
            "move" => self.shift(operation),
            "copy" => self.copy(operation),
            "test" => self.test(operation),
            _ => Err(format!("Unexpected kind: {op}")),
        }
    }

    fn add(&mut self, operation: &PatchOperation) -> Result<(), String> {
        let path = operation
            .path
            .as_deref()
            .ok_or("add operation failed to decode path: missing value")?;
        let (container, key) = self.find(path).ok_or_else(|| {
            format!("add operation does not apply: doc is missing path: \"{path}\": {MISSING}")
        })?;
        insert(container, &key, operation.value.clone().unwrap_or_default())
            .map_err(|error| format!("error in add for path: '{path}': {error}"))?;
        self.close(path);
        self.put.insert(path.to_string());
        Ok(())
    }

    fn remove(&mut self, operation: &PatchOperation) -> Result<(), String> {
        let path = operation
            .path
            .as_deref()
            .ok_or("remove operation failed to decode path: missing value")?;
        let (container, key) = self.find(path).ok_or_else(|| {
            format!("remove operation does not apply: doc is missing path: \"{path}\": {MISSING}")
        })?;
        take(container, &key)
            .map(drop)
            .map_err(|error| format!("error in remove for path: '{path}': {error}"))
    }

    fn replace(&mut self, operation: &PatchOperation) -> Result<(), String> {
        let path = path_of(operation, "replace")?;
        self.put.insert(path.to_string());
        let value = operation.value.clone().unwrap_or_default();
        if path.is_empty() {
            return self.replace_all(value);
        }
        let (container, key) = self.find(path).ok_or_else(|| {
            format!("replace operation does not apply: doc is missing path: {path}: {MISSING}")
        })?;
        let missing =
            |_| format!("replace operation does not apply: doc is missing key: {path}: {MISSING}");
        match container {
            PatchContainer::Map(map) => drop(map.insert(key.as_str(), value)),
            PatchContainer::List(items) => {
                let index = position(&key, items.len()).map_err(missing)?;
                items[index] = value;
            }
        }
        self.close(path);
        Ok(())
    }

    fn replace_all(&mut self, value: Value) -> Result<(), String> {
        if !matches!(value, Value::Map(_) | Value::List(_)) {
            return Err("replace operation value must be object or array: %!w(<nil>)".into());
        }
        *self.target = value;
        Ok(())
    }

    /// The operation `move`.
    fn shift(&mut self, operation: &PatchOperation) -> Result<(), String> {
        let from = from_of(operation, "move")?;
        let (container, key) = self.find(from).ok_or_else(|| {
            format!("move operation does not apply: doc is missing from path: {from}: {MISSING}")
        })?;
        let value = take(container, &key)
            .map_err(|error| format!("error in move for path: '{key}': {error}"))?;
        let path = path_of(operation, "move")?;
        let moved = self.close(from);
        let (container, key) = self.find(path).ok_or_else(|| {
            format!(
                "move operation does not apply: doc is missing destination path: {path}: {MISSING}"
            )
        })?;
        insert(container, &key, value)
            .map_err(|error| format!("error in move for path: '{path}': {error}"))?;
        self.close(path);
        let moved = moved.iter().map(|below| format!("{path}{below}"));
        self.opened.extend(moved);
        Ok(())
    }

    /// Removes the pointers into a value that was removed; returns them relative to it.
    fn close(&mut self, path: &str) -> Vec<String> {
        let below = |pointer: &String| {
            let below = pointer.strip_prefix(path)?;
            (below.is_empty() || below.starts_with('/')).then(|| below.to_owned())
        };
        let closed = self.opened.iter().filter_map(below).collect();
        self.opened.retain(|pointer| below(pointer).is_none());
        closed
    }

    fn copy(&mut self, operation: &PatchOperation) -> Result<(), String> {
        let from = from_of(operation, "copy")?;
        let (container, key) = self.find(from).ok_or_else(|| {
            format!("copy operation does not apply: doc is missing from path: {from}: {MISSING}")
        })?;
        let value = get(&container, &key)
            .map_err(|error| format!("error in copy for from: '{from}': {error}"))?;
        let mut value = value.cloned().unwrap_or_default();
        let path = operation
            .path
            .as_deref()
            .ok_or("copy operation failed to decode path: missing value")?;
        let missing = || {
            format!(
                "copy operation does not apply: doc is missing destination path: {path}: {MISSING}"
            )
        };
        self.find(path).ok_or_else(missing)?;
        self.sort_copy(from, &mut value);
        self.count_copy(&value)?;
        let (container, key) = self.find(path).ok_or_else(missing)?;
        insert(container, &key, value)
            .map_err(|error| format!("error while adding value during copy: {error}"))?;
        self.close(path);
        Ok(())
    }

    /// Sorts what was traversed in a value from `from`, whose text is copied.
    fn sort_copy(&self, from: &str, value: &mut Value) {
        let below = self
            .opened
            .range(from.to_string()..)
            .take_while(|pointer| pointer.starts_with(from));
        for pointer in below.map(|pointer| &pointer[from.len()..]) {
            if (pointer.is_empty() || pointer.starts_with('/'))
                && let Some(PatchContainer::Map(map)) = walk(value, pointer)
            {
                map.sort();
            }
        }
    }

    fn count_copy(&mut self, value: &Value) -> Result<(), String> {
        if !value.is_null() {
            self.copied += json::to_string(value).len();
        }
        if self.copied <= MAX_COPIED {
            return Ok(());
        }
        let problem = "Unable to complete the copy, the accumulated size increase of copy is";
        Err(format!(
            "{problem} {}, exceeding the limit {MAX_COPIED}",
            self.copied
        ))
    }

    fn test(&mut self, operation: &PatchOperation) -> Result<(), String> {
        let path = path_of(operation, "test")?;
        let expected = operation.value.as_ref().unwrap_or(&Value::Null);
        // Kubernetes: scalars are compared as text, and the text of an object is canonical.
        let spelled_alike = !operation.odd_spelling || self.has_put(path);
        let found = self.tested(path)?;
        match found {
            None | Some(Value::Null) if expected.is_null() => Ok(()),
            Some(found) if !found.is_null() && found == expected && spelled_alike => {
                sort_deep(found);
                Ok(())
            }
            _ => Err(format!("testing value {path} failed: test failed")),
        }
    }

    /// Whether the value at `path` comes from the patch, or contains such a value.
    fn has_put(&self, path: &str) -> bool {
        let at_or_above = |(end, _): (usize, &str)| self.put.contains(&path[..end]);
        let below = self.put.range(path.to_string()..).next();
        below.is_some_and(|put| put.starts_with(path))
            || self.put.contains("")
            || path.match_indices('/').any(at_or_above)
    }

    fn tested(&mut self, path: &str) -> Result<Option<&mut Value>, String> {
        if path.is_empty() {
            return Ok(Some(self.target));
        }
        let (container, key) = self.find(path).ok_or_else(|| {
            format!("test operation does not apply: is missing path: {path}: {MISSING}")
        })?;
        match container {
            PatchContainer::Map(map) => Ok(map.get_mut(&key)),
            PatchContainer::List(items) => {
                let index = position(&key, items.len());
                let index =
                    index.map_err(|error| format!("error in test for path: '{path}': {error}"))?;
                Ok(Some(&mut items[index]))
            }
        }
    }

    /// The container of a pointer's last part, and that part.
    fn find(&mut self, path: &str) -> Option<(PatchContainer<'_>, String)> {
        let (parents, key) = path.rsplit_once('/')?;
        // The text before the first slash is ignored.
        let parents = parents.find('/').map_or("", |start| &parents[start..]);
        self.remember(parents);
        let container = walk(self.target, parents)?;
        Some((container, unescaped(key)))
    }

    fn remember(&mut self, mut pointer: &str) {
        while !self.opened.contains(pointer) {
            self.opened.insert(pointer.to_string());
            pointer = pointer.rsplit_once('/').map_or("", |(parents, _)| parents);
        }
    }

    fn sort_opened(&mut self) {
        for pointer in &self.opened {
            if let Some(PatchContainer::Map(map)) = walk(self.target, pointer) {
                map.sort();
            }
        }
    }
}

fn path_of<'a>(operation: &'a PatchOperation, op: &str) -> Result<&'a str, String> {
    let missing =
        || format!("{op} operation failed to decode path: operation missing path field: {MISSING}");
    operation.path.as_deref().ok_or_else(missing)
}

fn from_of<'a>(operation: &'a PatchOperation, op: &str) -> Result<&'a str, String> {
    let missing = || {
        format!("{op} operation failed to decode from: operation, missing from field: {MISSING}")
    };
    operation.from.as_deref().ok_or_else(missing)
}

/// A map or list.
enum PatchContainer<'a> {
    Map(&'a mut Map),
    List(&'a mut Vec<Value>),
}

fn walk<'a>(target: &'a mut Value, pointer: &str) -> Option<PatchContainer<'a>> {
    let found = pointer
        .split('/')
        .skip(1)
        .try_fold(target, |value, part| match value {
            Value::Map(map) => map.get_mut(&unescaped(part)),
            Value::List(items) => {
                let index = position(&unescaped(part), items.len()).ok()?;
                items.get_mut(index)
            }
            _ => None,
        })?;
    match found {
        Value::Map(map) => Some(PatchContainer::Map(map)),
        Value::List(items) => Some(PatchContainer::List(items)),
        _ => None,
    }
}

/// `~1` is a slash and `~0` a tilde, in this order, so that `~01` is `~1`.
fn unescaped(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

fn get<'a>(container: &'a PatchContainer, key: &str) -> Result<Option<&'a Value>, String> {
    match container {
        PatchContainer::Map(map) => Ok(map.get(key)),
        PatchContainer::List(items) => Ok(Some(&items[position(key, items.len())?])),
    }
}

fn insert(container: PatchContainer, key: &str, value: Value) -> Result<(), String> {
    match container {
        PatchContainer::Map(map) => drop(map.insert(key, value)),
        PatchContainer::List(items) if key == "-" => items.push(value),
        PatchContainer::List(items) => {
            let index =
                position(key, items.len() + 1).map_err(|error| match key.parse::<i64>() {
                    Ok(_) => error,
                    Err(_) => format!("value was not a proper array index: '{key}': {error}"),
                })?;
            items.insert(index, value);
        }
    }
    Ok(())
}

fn take(container: PatchContainer, key: &str) -> Result<Value, String> {
    match container {
        // Its members are sorted afterwards.
        PatchContainer::Map(map) => map
            .swap_remove(key)
            .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: {MISSING}")),
        PatchContainer::List(items) => {
            let index = position(key, items.len())?;
            Ok(items.remove(index))
        }
    }
}

/// An index below `bound`, counted from the end if negative.
fn position(part: &str, bound: usize) -> Result<usize, String> {
    let number: i64 = part.parse().map_err(|_| {
        format!(
            "strconv.Atoi: parsing {}: invalid syntax",
            json::quote(part)
        )
    })?;
    let index = if number < 0 {
        number + bound as i64
    } else {
        number
    };
    match usize::try_from(index) {
        Ok(index) if index < bound => Ok(index),
        _ => Err(format!(
            "Unable to access invalid index: {number}: invalid index referenced"
        )),
    }
}

fn sort_deep(value: &mut Value) {
    match value {
        Value::Map(map) => {
            map.sort();
            map.values_mut().for_each(sort_deep);
        }
        Value::List(items) => items.iter_mut().for_each(sort_deep),
        _ => {}
    }
}
