//! Objects in versions other than the stored one: built-in ones by hooks, custom ones by a converter that may fail.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use mizzen_object::{Kind, Status, schema};
use mizzen_registry::{BoxFuture, Convert, ListOptions, Record, WatchEvent, WatchOptions};
use mizzen_value::Value;

use crate::rig::{UpdateOptions, each_store, key, names, record, selected};

/// Turns widgets of `v1`, which have a size, into widgets of `v2`, which have a width, and back.
pub(crate) struct Renamer {
    kinds: Vec<Kind>,
    /// How many objects were read in each call.
    pub(crate) calls: Mutex<Vec<usize>>,
    pub(crate) fails: AtomicBool,
}

impl Renamer {
    pub(crate) fn new(kinds: Vec<Kind>) -> Renamer {
        Renamer {
            kinds,
            calls: Mutex::default(),
            fails: AtomicBool::new(false),
        }
    }

    fn turn(&self, mut object: Value, kind: &Kind) -> Value {
        let (from, to) = if kind.gvk.version == "v2" {
            ("size", "width")
        } else {
            ("width", "size")
        };
        if let Some(number) = object.entry("spec").remove(from) {
            object.entry("spec").set(to, number);
        }
        object.set("apiVersion", kind.gvk.api_version());
        schema::canonical_stored(&kind.root, &mut object);
        object
    }

    fn turn_all(&self, objects: Vec<Value>, kind: &Kind) -> Result<Vec<Value>, Status> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(Status::unknown("conversion webhook failed"));
        }
        Ok(objects
            .into_iter()
            .map(|object| self.turn(object, kind))
            .collect())
    }
}

impl Convert for Renamer {
    fn stored(&self) -> &Kind {
        &self.kinds[0]
    }

    fn is_current(&self, _: &Record, kind: &Kind) -> bool {
        kind.gvk == self.kinds[0].gvk
    }

    fn read<'a>(
        &'a self,
        objects: Vec<Value>,
        kind: &'a Kind,
    ) -> BoxFuture<'a, Result<Vec<Value>, Status>> {
        self.calls.lock().push(objects.len());
        Box::pin(async move { self.turn_all(objects, kind) })
    }

    fn write<'a>(&'a self, object: Value, _: &'a Kind) -> BoxFuture<'a, Result<Value, Status>> {
        Box::pin(async move { Ok(self.turn_all(vec![object], &self.kinds[0])?.remove(0)) })
    }

    fn translate<'a>(
        &'a self,
        objects: Vec<Value>,
        kind: &'a Kind,
    ) -> BoxFuture<'a, Result<Vec<Value>, Status>> {
        Box::pin(async move { self.turn_all(objects, kind) })
    }

    fn only_renames(&self) -> bool {
        false
    }
}

const AUTOSCALER: &str = r#"{"metadata":{"name":"a"},"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},
    "minReplicas":1,"maxReplicas":5,"targetCPUUtilizationPercentage":70}}"#;

#[tokio::test]
async fn a_built_in_object_is_kept_in_its_hub_and_read_in_any_version() {
    for rig in each_store() {
        let v1 = rig.resource("autoscaling/v1/horizontalpodautoscalers");
        let v2 = rig.resource("autoscaling/v2/horizontalpodautoscalers");
        let created = rig.create(&v1, AUTOSCALER).await.unwrap().value();
        assert_eq!(created["apiVersion"].str(), "autoscaling/v1");
        let hub = rig.read(&v2).await.unwrap();
        assert_eq!(hub["apiVersion"].str(), "autoscaling/v2");
        let target = &hub["spec"]["metrics"].list()[0]["resource"]["target"];
        assert_eq!(target["averageUtilization"].int(), 70);
        let edit = |current: Option<&Value>| {
            let mut new = current.unwrap().clone();
            new.entry("spec").set("targetCPUUtilizationPercentage", 50);
            new
        };
        rig.edit(&v1, &UpdateOptions::default(), edit)
            .await
            .unwrap();
        let hub = rig.read(&v2).await.unwrap();
        let target = &hub["spec"]["metrics"].list()[0]["resource"]["target"];
        assert_eq!(target["averageUtilization"].int(), 50);
        let list = rig.list(&v1, &ListOptions::default()).await.ok().unwrap();
        assert_eq!(list.items[0].value(), rig.read(&v1).await.unwrap());
    }
}

#[tokio::test]
async fn a_built_in_object_leaves_a_selection_in_the_version_that_is_watched() {
    for rig in each_store() {
        let v1 = rig.resource("autoscaling/v1/horizontalpodautoscalers");
        let labelled = |label: &str| {
            AUTOSCALER.replacen(
                r#""name":"a""#,
                &format!(r#""name":"a","labels":{{"l":"{label}"}}"#),
                1,
            )
        };
        rig.create(&v1, &labelled("x")).await.unwrap();
        let options = WatchOptions {
            selection: selected("l=x", ""),
            version: rig.revision(),
            ..WatchOptions::default()
        };
        let mut watch = rig.registry.watch(&v1, options).await.ok().unwrap();
        rig.replace(&v1, &labelled("y"), &UpdateOptions::default())
            .await
            .unwrap();
        let events = watch.next().await.ok().unwrap();
        let WatchEvent::Object(change, object) = &events[0] else {
            panic!("an object")
        };
        let object = object.value();
        assert_eq!(
            (change.word(), object["apiVersion"].str()),
            ("DELETED", "autoscaling/v1")
        );
        assert_eq!(object["metadata"]["resourceVersion"].str(), rig.revision());
        assert_eq!(object["metadata"]["labels"]["l"].str(), "x");
    }
}

const WIDGET: &str = r#"{"metadata":{"name":"a"},"spec":{"width":3}}"#;

#[tokio::test]
async fn a_custom_object_is_stored_in_its_stored_version_and_read_in_any() {
    for rig in each_store() {
        let (v1, v2, _) = rig.widgets();
        let created = rig.create(&v2, WIDGET).await.unwrap().value();
        assert_eq!(
            (created["apiVersion"].str(), created["spec"]["width"].int()),
            ("example.com/v2", 3)
        );
        assert!(
            record(&v1)
                .value
                .starts_with(br#"{"apiVersion":"example.com/v1","#)
        );
        let stored = rig.read(&v1).await.unwrap();
        assert_eq!(
            (stored["apiVersion"].str(), stored["spec"]["size"].int()),
            ("example.com/v1", 3)
        );
        let edit = |current: Option<&Value>| {
            let mut new = current.unwrap().clone();
            new.entry("spec").set("width", 4);
            new
        };
        rig.edit(&v2, &UpdateOptions::default(), edit)
            .await
            .unwrap();
        assert_eq!(rig.read(&v1).await.unwrap()["spec"]["size"].int(), 4);
        assert!(rig.delete(&v2, &Default::default()).await.unwrap().gone);
    }
}

#[tokio::test]
async fn a_converter_that_fails_fails_only_the_readers_that_need_it() {
    for rig in each_store() {
        let (v1, v2, convert) = rig.widgets();
        rig.create(&v1, r#"{"metadata":{"name":"a"},"spec":{"size":3}}"#)
            .await
            .unwrap();
        convert.fails.store(true, Ordering::Relaxed);
        assert_eq!(
            rig.read(&v2).await.unwrap_err().message,
            "conversion webhook failed"
        );
        let list = rig.list(&v2, &ListOptions::default()).await;
        assert_eq!(list.err().unwrap().message, "conversion webhook failed");
        assert!(
            rig.registry
                .watch(&v2, WatchOptions::default())
                .await
                .is_err()
        );
        assert!(rig.delete(&v2, &Default::default()).await.is_err());
        assert_eq!(rig.read(&v1).await.unwrap()["spec"]["size"].int(), 3);
    }
}

#[tokio::test]
async fn pages_of_converted_objects_are_those_of_stored_ones() {
    for rig in each_store() {
        let (v1, v2, _) = rig.widgets();
        for number in 0..5 {
            let label = if number % 2 == 0 { "even" } else { "odd" };
            let text = format!(
                r#"{{"metadata":{{"name":"w{number}","labels":{{"l":"{label}"}}}},"spec":{{"size":{number}}}}}"#
            );
            rig.create(&v1, &text).await.unwrap();
        }
        for resource in [&v1, &v2] {
            for (labels, expected) in [
                ("", vec!["w0", "w1", "w2", "w3", "w4"]),
                ("l=even", vec!["w0", "w2", "w4"]),
            ] {
                let (mut seen, mut token) = (Vec::new(), String::new());
                loop {
                    let options = ListOptions {
                        selection: selected(labels, ""),
                        limit: 2,
                        token,
                        ..ListOptions::default()
                    };
                    let list = rig.list(resource, &options).await.ok().unwrap();
                    assert!(list.items.len() <= 2);
                    seen.extend(names(&list));
                    token = list.token;
                    if token.is_empty() {
                        break;
                    }
                }
                assert_eq!(seen, expected);
            }
        }
    }
}

#[tokio::test]
async fn a_dry_run_shows_a_converted_object_as_it_would_be_read() {
    for rig in each_store() {
        let (_, v2, _) = rig.widgets();
        rig.create(&v2, WIDGET).await.unwrap();
        let options = UpdateOptions {
            dry_run: true,
            ..UpdateOptions::default()
        };
        let edit = |current: Option<&Value>| {
            let mut new = current.unwrap().clone();
            new.entry("spec").set("width", 9);
            new
        };
        let object = rig.edit(&v2, &options, edit).await.unwrap().object.value();
        assert_eq!(
            (object["apiVersion"].str(), object["spec"]["width"].int()),
            ("example.com/v2", 9)
        );
        assert_eq!(rig.read(&v2).await.unwrap()["spec"]["width"].int(), 3);
    }
}

#[tokio::test]
async fn a_version_that_needs_a_converter_cannot_be_read_without_waiting_for_it() {
    for rig in each_store() {
        let (v1, v2, _) = rig.widgets();
        rig.create(&v1, r#"{"metadata":{"name":"a"},"spec":{"size":3}}"#)
            .await
            .unwrap();
        assert!(rig.registry.get(&v1, &key("a"), "").is_ok());
        let unread = rig.registry.get(&v2, &key("a"), "");
        assert_eq!(unread.err().unwrap().code, 500);
        rig.read(&v2).await.unwrap();
        assert!(
            rig.registry.get(&v2, &key("a"), "").is_ok(),
            "it is remembered"
        );
    }
}

#[tokio::test]
async fn another_version_is_rendered_once_and_cached() {
    for rig in each_store() {
        let (v1, v2, convert) = rig.widgets();
        rig.create(
            &v1,
            r#"{"metadata":{"name":"a","labels":{"l":"x"}},"spec":{"size":3}}"#,
        )
        .await
        .unwrap();
        let first = rig.registry.read(&v2, &key("a"), "").await.ok().unwrap();
        for labels in ["", "l=x"] {
            let options = ListOptions {
                selection: selected(labels, ""),
                ..ListOptions::default()
            };
            let list = rig.list(&v2, &options).await.ok().unwrap();
            assert_eq!(list.items[0].json.as_ptr(), first.json.as_ptr());
        }
        assert_eq!(*convert.calls.lock(), [1]);
        assert!(first.forms(&v2).is_some());

        let edit = |current: Option<&Value>| {
            let mut new = current.unwrap().clone();
            new.entry("spec").set("width", 4);
            new
        };
        rig.edit(&v2, &UpdateOptions::default(), edit)
            .await
            .unwrap();
        assert_eq!(rig.read(&v2).await.unwrap()["spec"]["width"].int(), 4);
        assert_eq!(
            *convert.calls.lock(),
            [1, 1],
            "another revision, another text"
        );

        let (_, other, renewed) = rig.widgets();
        assert_eq!(rig.read(&other).await.unwrap()["spec"]["width"].int(), 4);
        assert_eq!(
            *renewed.calls.lock(),
            [1],
            "another definition renders anew"
        );

        let v1 = rig.resource("autoscaling/v1/horizontalpodautoscalers");
        rig.create(&v1, AUTOSCALER).await.unwrap();
        let texts = [(); 2].map(|()| rig.registry.get(&v1, &key("a"), "").ok().unwrap().json);
        assert_eq!(texts[0].as_ptr(), texts[1].as_ptr());
    }
}

#[tokio::test]
async fn a_page_converts_no_more_objects_than_it_has() {
    for rig in each_store() {
        let (v1, v2, convert) = rig.widgets();
        for number in 0..20 {
            let text = format!(r#"{{"metadata":{{"name":"w{number:02}"}},"spec":{{"size":1}}}}"#);
            rig.create(&v1, &text).await.unwrap();
        }
        let options = ListOptions {
            limit: 3,
            ..ListOptions::default()
        };
        let list = rig.list(&v2, &options).await.ok().unwrap();
        assert_eq!((list.items.len(), list.remaining), (3, Some(17)));
        assert_eq!(
            *convert.calls.lock(),
            [4],
            "one more tells that there are more"
        );
    }
}

#[tokio::test]
async fn a_custom_object_leaves_a_selection_in_the_version_that_is_watched() {
    for rig in each_store() {
        let (v1, v2, _) = rig.widgets();
        let labelled = |label: &str| {
            format!(
                r#"{{"metadata":{{"name":"a","annotations":{{"resourceVersion":"2"}},"labels":{{"l":"{label}"}}}},"spec":{{"size":3}}}}"#
            )
        };
        rig.create(&v1, &labelled("x")).await.unwrap();
        let options = WatchOptions {
            selection: selected("l=x", ""),
            version: rig.revision(),
            ..WatchOptions::default()
        };
        let mut watch = rig.registry.watch(&v2, options).await.ok().unwrap();
        let relabel = |current: Option<&Value>| {
            let mut new = current.unwrap().clone();
            new.entry("metadata").entry("labels").set("l", "y");
            new
        };
        rig.edit(&v1, &UpdateOptions::default(), relabel)
            .await
            .unwrap();
        let events = watch.next().await.ok().unwrap();
        let WatchEvent::Object(change, object) = &events[0] else {
            panic!("an object")
        };
        let object = object.value();
        assert_eq!(
            (change.word(), object["spec"]["width"].int()),
            ("DELETED", 3)
        );
        assert_eq!(object["metadata"]["resourceVersion"].str(), rig.revision());
        assert_eq!(
            object["metadata"]["annotations"]["resourceVersion"].str(),
            "2"
        );
    }
}
