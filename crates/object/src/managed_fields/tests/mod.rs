//! Scenarios: sequences of updates and applies by several managers.

mod apply;
mod property;
mod structured_merge;
mod update;

use std::sync::{Arc, LazyLock};

use super::{FieldManager, FieldSet, OneVersion};
use crate::decode::decode;
use crate::names::GroupVersionKind;
use crate::patch;
use crate::schema::{Schemas, Struct, parse};
use mizzen_value::Value;
use mizzen_value::json;

/// A kind with every ownership rule.
const KINDS: &str = r#"
group meta
version v1

type ObjectMeta
  1 name string
  3 namespace string
  5 uid string
  6 resourceVersion string
  11 labels map[string]string
  12 annotations map[string]string
  13 ownerReferences []OwnerReference list=map(uid)
  14 finalizers []string list=set
  17 managedFields []ManagedFieldsEntry list=atomic

type OwnerReference map=atomic
  1 kind !string default=""
  2 uid !string default=""

type ManagedFieldsEntry
  1 manager string
  2 operation string
  3 apiVersion string
  4 time ?Time
  6 fieldsType string
  7 fieldsV1 ?FieldsV1
  8 subresource string

group example.com
version v1

type Thing
  1 metadata !meta/v1.ObjectMeta
  2 spec !Spec
  3 status !Status

type Spec
  1 replicas ?int32
  2 ports []Port list=map(port,protocol)
  3 items ![]Item list=map(name)
  4 args []string
  5 data map[string]string
  6 selector map[string]string map=atomic
  7 free JSON

type Port
  1 name string
  2 port !int32 default=0
  3 protocol string default="TCP"

type Item
  1 name !string default=""
  2 image string
  3 tags []string list=set

type Status
  1 phase string
"#;

static SCHEMAS: LazyLock<Schemas> = LazyLock::new(|| parse([("test", KINDS)]).unwrap());
static GVK: LazyLock<GroupVersionKind> = LazyLock::new(|| GroupVersionKind {
    group: "example.com".into(),
    version: "v1".into(),
    kind: "Thing".into(),
});
static STATUS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_names(&["status"]));

fn schema() -> &'static Arc<Struct> {
    &SCHEMAS.types["example.com/v1.Thing"]
}

/// An object that is written repeatedly, one second apart.
#[derive(Debug, Clone, Default)]
struct Scenario {
    object: Option<Value>,
    seconds: usize,
}

impl Scenario {
    fn write<T>(
        &mut self,
        manager: &str,
        write: impl FnOnce(&FieldManager, Option<&Value>) -> T,
    ) -> T {
        let now = format!("2024-01-01T00:00:{:02}Z", self.seconds);
        self.seconds += 1;
        let field_manager = FieldManager {
            schema: schema(),
            gvk: &GVK,
            manager,
            subresource: "",
            now: &now,
            reset_fields: &STATUS,
            versions: &OneVersion,
        };
        write(&field_manager, self.object.as_ref())
    }

    fn keep(&mut self, object: Value) {
        let mut object = canonical(&object);
        object.entry("metadata").set("uid", "u");
        self.object = Some(object);
    }

    /// Creates or replaces the object.
    fn put(&mut self, manager: &str, body: &str) -> &mut Scenario {
        self.put_value(manager, thing(body))
    }

    /// Updates the object with a merge patch.
    fn patch(&mut self, manager: &str, body: &str) -> &mut Scenario {
        let mut new = self.object.clone().unwrap_or_else(|| thing("{}"));
        patch::merge(&mut new, json::parse(body.as_bytes()).unwrap());
        self.put_value(manager, new)
    }

    fn put_value(&mut self, manager: &str, new: Value) -> &mut Scenario {
        let mut new = canonical(&new);
        self.write(manager, |field_manager, old| {
            field_manager.update(old, &mut new)
        });
        self.keep(new);
        self
    }

    /// Applies a configuration; returns the conflicts.
    fn try_apply(&mut self, manager: &str, config: &Value, force: bool) -> Result<(), String> {
        let applied = self.write(manager, |field_manager, old| {
            field_manager.apply(old, config, force)
        });
        let applied = applied.map_err(|error| error.to_status().message)?;
        self.keep(applied);
        Ok(())
    }

    #[track_caller]
    fn apply(&mut self, manager: &str, config: &str) -> &mut Scenario {
        assert_eq!(self.try_apply(manager, &thing(config), false), Ok(()));
        self
    }

    #[track_caller]
    fn force(&mut self, manager: &str, config: &str) -> &mut Scenario {
        assert_eq!(self.try_apply(manager, &thing(config), true), Ok(()));
        self
    }

    fn refused(&mut self, manager: &str, config: &str) -> String {
        self.try_apply(manager, &thing(config), false).unwrap_err()
    }

    /// The object and its managed fields.
    fn summary(&self) -> String {
        let Some(object) = &self.object else {
            return "nothing".into();
        };
        let mut lines = vec![json::to_string(&object["spec"])];
        for entry in object["metadata"]["managedFields"].list() {
            let time = entry["time"].str().get(17..19).unwrap_or("never");
            let (manager, operation) = (entry["manager"].str(), entry["operation"].str());
            lines.push(format!(
                "{manager} {operation} {time} {}",
                json::to_string(&entry["fieldsV1"])
            ));
        }
        lines.join("\n")
    }
}

/// An object with these members.
fn thing(body: &str) -> Value {
    let mut object = json::parse(body.as_bytes()).unwrap();
    object.set("apiVersion", "example.com/v1");
    object.set("kind", "Thing");
    object.entry("metadata").set("name", "a");
    object
}

fn canonical(object: &Value) -> Value {
    decode(schema(), json::to_string(object).as_bytes())
        .unwrap()
        .value
}
