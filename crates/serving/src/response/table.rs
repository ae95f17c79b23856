//! Tables, as `kubectl get` prints them: one row per object.

use bytes::Bytes;
use mizzen_object::jsonpath::{self, Template};
use mizzen_object::{Column, Kind};
use mizzen_registry::{Object, Resource};
use mizzen_value::{Value, json, time};

use super::object::{partial, plain_partial};

/// The placeholder for an age, which is filled in when the row is sent. A row that contains this text otherwise is not
/// cached.
const AGE: &str = "\u{1}age\u{1}";
/// After this long every age is printed differently.
const LATER: i64 = 400 * 24 * 60 * 60;

/// A table of one object that is no resource, such as a Scale, with its own columns.
pub fn single_row(columns: &[Column], cells: Vec<Value>, object: &Object, version: &str) -> Bytes {
    let mut out =
        format!("{{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/{version}\",\"metadata\":")
            .into_bytes();
    own_metadata(std::slice::from_ref(object), &mut out);
    out.extend_from_slice(b",\"columnDefinitions\":");
    headings(columns, &mut out);
    out.extend_from_slice(b",\"rows\":[{\"cells\":");
    json::write(&Value::List(cells), &mut out);
    out.extend_from_slice(b",\"object\":");
    out.extend_from_slice(&plain_partial(object, version));
    out.extend_from_slice(b"}]}");
    out.into()
}

/// How a table is rendered.
pub struct TableRenderer<'a> {
    /// The resource of the objects.
    pub resource: &'a Resource,
    /// The version of `meta.k8s.io`.
    pub version: &'a str,
    /// How much of the object a row has: `None`, `Metadata` or `Object`.
    pub include: &'a str,
    /// The time, in Unix seconds, for ages.
    pub now: i64,
    /// Whether the columns are described.
    pub headings: bool,
}

impl TableRenderer<'_> {
    /// The JSON of a table. `metadata` is that of the list; without it, the version of the object is used.
    pub fn text(&self, objects: &[Object], metadata: Option<&Value>) -> Bytes {
        let mut out = Vec::with_capacity(1024 + objects.len() * 512);
        out.extend_from_slice(b"{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/");
        out.extend_from_slice(self.version.as_bytes());
        out.extend_from_slice(b"\",\"metadata\":");
        match metadata {
            Some(metadata) => json::write(metadata, &mut out),
            None => own_metadata(objects, &mut out),
        }
        out.extend_from_slice(b",\"columnDefinitions\":");
        if self.headings {
            headings(&self.resource.kind().columns, &mut out)
        } else {
            out.extend_from_slice(b"null")
        }
        // Kubernetes: a kind without a printer of its own has `null` instead of no rows.
        let columns = &self.resource.kind().columns;
        if objects.is_empty() && columns.iter().any(|column| column.name == "Created At") {
            out.extend_from_slice(b",\"rows\":null}");
            return out.into();
        }
        out.extend_from_slice(b",\"rows\":[");
        for (index, object) in self.in_order(objects).enumerate() {
            if index > 0 {
                out.push(b',');
            }
            self.row(object, &mut out);
        }
        out.extend_from_slice(b"]}");
        out.into()
    }

    /// Sorts the objects of kinds that have an order of their own.
    fn in_order<'a>(&self, objects: &'a [Object]) -> impl Iterator<Item = &'a Object> {
        let mut order: Vec<&Object> = objects.iter().collect();
        if let Some(rank) = self.resource.kind().hooks.row_rank() {
            order.sort_by_cached_key(|object| rank(&object.value()));
        }
        order.into_iter()
    }

    fn row(&self, object: &Object, out: &mut Vec<u8>) {
        let is_default = self.version == "v1" && matches!(self.include, "" | "Metadata");
        let forms = object.forms(self.resource).filter(|_| is_default);
        match forms.and_then(|forms| {
            forms
                .row
                .get_or_init(|| self.ageless_row(object).map(Box::new))
                .as_deref()
        }) {
            Some((before, made, after)) => {
                out.extend_from_slice(before);
                json::write_string(&time::age(self.now - made), out);
                out.extend_from_slice(after);
            }
            None => {
                let value = object.value();
                self.write_row(object, &value, &row(self.resource, &value, self.now), out);
            }
        }
    }

    /// A row split at its age, if only the age changes with time.
    fn ageless_row(&self, object: &Object) -> Option<(Bytes, i64, Bytes)> {
        let value = object.value();
        let made = time::to_unix(value["metadata"]["creationTimestamp"].str())?;
        let mut cells = row(self.resource, &value, self.now);
        let later = row(self.resource, &value, self.now + LATER);
        let mut changing = (0..cells.len()).filter(|at| cells[*at] != later[*at]);
        let (at, None) = (changing.next()?, changing.next()) else {
            return None;
        };
        let ages = [(&cells, self.now), (&later, self.now + LATER)];
        if ages
            .iter()
            .any(|(cells, now)| cells[at].str() != time::age(now - made))
        {
            return None;
        }
        cells[at] = AGE.into();
        let mut text = Vec::with_capacity(512);
        self.write_row(object, &value, &cells, &mut text);
        let marker = json::to_string(&AGE.into());
        let text = String::from_utf8(text).ok()?;
        if text.matches(&marker).count() != 1 {
            return None;
        }
        let (before, after) = text.split_once(&marker)?;
        Some((before.to_string().into(), made, after.to_string().into()))
    }

    fn write_row(&self, object: &Object, value: &Value, cells: &[Value], out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"cells\":");
        json::write(&Value::List(cells.to_vec()), out);
        let conditions = self.resource.kind().hooks.row_conditions(value);
        if !conditions.is_empty() {
            out.extend_from_slice(b",\"conditions\":");
            json::write(&Value::List(conditions), out);
        }
        out.extend_from_slice(b",\"object\":");
        match self.include {
            "None" => out.extend_from_slice(b"null"),
            "Object" => out.extend_from_slice(&object.json),
            _ => out.extend_from_slice(&partial(self.resource.kind(), object, self.version)),
        }
        out.push(b'}');
    }
}

fn own_metadata(objects: &[Object], out: &mut Vec<u8>) {
    let version = objects
        .first()
        .map(|object| object.value()["metadata"]["resourceVersion"].clone());
    let mut metadata = Value::object();
    if let Some(version @ Value::String(_)) = version {
        metadata.set("resourceVersion", version);
    }
    json::write(&metadata, out);
}

/// The cells of an object: those of its storage version, unless its own version has a table.
fn row(resource: &Resource, object: &Value, now: i64) -> Vec<Value> {
    match resource.in_storage_version(object) {
        Some((kind, object)) => built_in_row(kind, &object, now),
        None if resource.is_custom() => custom_row(&resource.kind().columns, object, now),
        None => built_in_row(resource.kind(), object, now),
    }
}

/// The cells of a built-in kind: by path, or computed by the kind. A kind may compute more cells than it has columns.
fn built_in_row(kind: &Kind, object: &Value, now: i64) -> Vec<Value> {
    let mut computed = kind.hooks.cells(object, now).into_iter();
    let mut cells: Vec<Value> = kind
        .columns
        .iter()
        .map(|column| match &column.path {
            Some(path) => match object.at(path.trim_start_matches('.')) {
                Value::Null if column.format == "name" => Value::from(""),
                found => found.clone(),
            },
            None => computed.next().unwrap_or_default(),
        })
        .collect();
    cells.extend(computed);
    cells
}

/// The cells of a custom object: the values at the columns' paths, if they have the column's type.
fn custom_row(columns: &[Column], object: &Value, now: i64) -> Vec<Value> {
    let typed = |ty: &str, value: Value| match (ty, &value) {
        ("integer", Value::Int(_)) | ("number", Value::Int(_) | Value::Number(_)) => value,
        ("integer", Value::Number(_)) => (value.as_f64().unwrap_or_default() as i64).into(),
        ("boolean", Value::Bool(_)) => value,
        ("date", Value::String(text)) => match time::to_unix(text) {
            Some(made) => time::age(now - made).into(),
            None => "<invalid>".into(),
        },
        _ => Value::Null,
    };
    let cell = |column: &Column| {
        let path = column.path.as_deref().unwrap_or_default();
        let found = Template::parse_path(path)
            .ok()
            .and_then(|path| path.first(object));
        match found {
            Some(value) if column.ty == "string" => jsonpath::text(&value).into(),
            Some(value) => typed(&column.ty, value),
            None => Value::Null,
        }
    };
    columns.iter().map(cell).collect()
}

fn headings(columns: &[Column], out: &mut Vec<u8>) {
    let columns = columns.iter().map(|column| {
        mizzen_value::value!({
            "name": (&column.name), "type": (&column.ty), "format": (&column.format),
            "description": (&column.description), "priority": (column.priority)
        })
    });
    json::write(&Value::List(columns.collect()), out);
}
