//! Watching objects: from a revision, from the beginning, through a selector, after the window has moved on.

use std::collections::BTreeMap;

use mizzen_object::select::{FieldSelector, LabelSelector};
use mizzen_registry::{
    Create, DeleteOptions, Key, NoAdmission, Resource, ResourceWatch, Selection, StoreOptions,
    Update, WatchEvent, WatchOptions, WindowLimits,
};
use mizzen_value::Value;

use crate::rig::{
    Edit, Rig, UpdateOptions, draft, each_store, each_store_with, named, next_events, selected,
    show,
};

fn labelled(name: &str, label: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","labels":{{"l":"{label}"}}}}}}"#)
}

#[tokio::test]
async fn a_watch_begins_after_its_revision() {
    for rig in each_store() {
        let maps = rig.config_maps();
        rig.create(&maps, &named("b")).await.unwrap();
        let start: u64 = rig.revision().parse().unwrap();
        rig.create(&maps, &named("a")).await.unwrap();
        let text = r#"{"metadata":{"name":"a"},"data":{"k":"v"}}"#;
        rig.replace(&maps, text, &UpdateOptions::default())
            .await
            .unwrap();
        rig.delete(&maps, &Default::default()).await.unwrap();
        let mut watch = rig.watch(&maps, &start.to_string()).await;
        let expected = ["ADDED", "MODIFIED", "DELETED"];
        let expected: Vec<String> = expected
            .iter()
            .zip(start + 1..)
            .map(|(word, at)| format!("{word} a {at}"))
            .collect();
        assert_eq!(next_events(&mut watch, 3).await, expected);
    }
}

#[tokio::test]
async fn a_watch_without_a_version_begins_with_everything_that_is_there() {
    for rig in each_store() {
        let maps = rig.config_maps();
        rig.create(&maps, &named("a")).await.unwrap();
        let mut watch = rig.watch(&maps, "").await;
        assert!(watch.progress().is_none(), "it has told nothing yet");
        let expected = [
            format!("ADDED a {}", rig.revision()),
            format!("INITIAL {}", rig.revision()),
        ];
        assert_eq!(next_events(&mut watch, 2).await, expected);
        assert_eq!(watch.progress().unwrap().to_string(), rig.revision());
        rig.create(&maps, &named("b")).await.unwrap();
        assert_eq!(
            next_events(&mut watch, 1).await,
            [format!("ADDED b {}", rig.revision())]
        );
    }
}

#[tokio::test]
async fn an_object_that_leaves_the_selection_is_deleted_as_it_was_seen_last_at_the_new_version() {
    for rig in each_store() {
        let maps = rig.config_maps();
        rig.create(&maps, &labelled("a", "x")).await.unwrap();
        let options = WatchOptions {
            selection: selected("l=x", ""),
            version: rig.revision(),
            ..WatchOptions::default()
        };
        let mut watch = rig.registry.watch(&maps, options).await.ok().unwrap();
        rig.replace(&maps, &labelled("a", "y"), &UpdateOptions::default())
            .await
            .unwrap();
        let left = rig.revision();
        rig.replace(&maps, &labelled("a", "x"), &UpdateOptions::default())
            .await
            .unwrap();
        let events = watch.next().await.ok().unwrap();
        let WatchEvent::Object(change, object) = &events[0] else {
            panic!("an object")
        };
        let object = object.value();
        assert_eq!(
            (change.word(), object["metadata"]["resourceVersion"].str()),
            ("DELETED", left.as_str())
        );
        assert_eq!(
            object["metadata"]["labels"]["l"].str(),
            "x",
            "as it was seen last"
        );
        let next = match events.get(1) {
            Some(WatchEvent::Object(change, _)) => change.word(),
            _ => next_events(&mut watch, 1).await[0]
                .split(' ')
                .next()
                .map(|word| match word {
                    "ADDED" => "ADDED",
                    _ => "another",
                })
                .unwrap(),
        };
        assert_eq!(next, "ADDED", "it came into view again");
    }
}

#[tokio::test]
async fn a_deleted_object_keeps_what_looks_like_its_version_elsewhere() {
    for rig in each_store() {
        let maps = rig.config_maps();
        let text = |label: &str| {
            format!(
                r#"{{"metadata":{{"name":"a","annotations":{{"resourceVersion":"2"}},"labels":{{"l":"{label}","resourceVersion":"2"}}}},"data":{{"resourceVersion":"2"}}}}"#
            )
        };
        rig.create(&maps, &text("x")).await.unwrap();
        assert_eq!(rig.revision(), "2");
        let options = WatchOptions {
            selection: selected("l=x", ""),
            version: rig.revision(),
            ..WatchOptions::default()
        };
        let mut watch = rig.registry.watch(&maps, options).await.ok().unwrap();
        rig.replace(&maps, &text("y"), &UpdateOptions::default())
            .await
            .unwrap();
        let events = watch.next().await.ok().unwrap();
        let WatchEvent::Object(_, object) = &events[0] else {
            panic!("an object")
        };
        let object = object.value();
        assert_eq!(object["metadata"]["resourceVersion"].str(), "3");
        for other in [
            &object["metadata"]["annotations"],
            &object["metadata"]["labels"],
            &object["data"],
        ] {
            assert_eq!(other["resourceVersion"].str(), "2");
        }
    }
}

#[tokio::test]
async fn a_watch_may_be_limited_to_a_namespace() {
    for rig in each_store() {
        let maps = rig.config_maps();
        let options = WatchOptions {
            selection: mizzen_registry::Selection {
                namespace: "n".into(),
                ..Default::default()
            },
            version: rig.revision(),
            ..WatchOptions::default()
        };
        let mut watch = rig.registry.watch(&maps, options).await.ok().unwrap();
        rig.create(&maps, &named("a")).await.unwrap();
        let draft = mizzen_value::json::parse(named("b").as_bytes()).unwrap();
        let create = Create::new(&maps, "n", draft);
        rig.registry.create(create).await.unwrap();
        assert_eq!(
            next_events(&mut watch, 1).await,
            [format!("ADDED b {}", rig.revision())]
        );
    }
}

#[tokio::test]
async fn a_watch_from_before_the_window_is_refused_and_one_that_falls_out_of_it_ends() {
    let window = WindowLimits {
        min_events: 2,
        max_events: 2,
        ..WindowLimits::default()
    };
    for rig in each_store_with(&StoreOptions {
        window,
        ..StoreOptions::default()
    }) {
        let maps = rig.config_maps();
        rig.create(&maps, &named("a")).await.unwrap();
        let start = rig.revision();
        let mut slow = rig.watch(&maps, &start).await;
        for number in 0..4 {
            let edit = |current: Option<&Value>| {
                let mut new = current.unwrap().clone();
                new.entry("data").set("k", number.to_string());
                new
            };
            rig.edit(&maps, &UpdateOptions::default(), edit)
                .await
                .unwrap();
        }
        let ended = slow.next().await.err().unwrap();
        assert_eq!((ended.code, ended.reason.as_str()), (410, "Expired"));
        let options = WatchOptions {
            version: start,
            ..WatchOptions::default()
        };
        let refused = rig.registry.watch(&maps, options).await.err().unwrap();
        assert!(
            refused.message.starts_with("too old resource version: "),
            "{}",
            refused.message
        );
    }
}

/// A pod as selectors see it.
#[derive(Clone)]
struct SelectablePod {
    label: usize,
    node: usize,
}

/// What is written to a random pod.
async fn write_pod(rig: &Rig, pods: &Resource, key: &Key, [what, label, node]: [usize; 3]) {
    let labelled = |mut pod: Value| {
        pod.entry("metadata")
            .entry("labels")
            .set("l", label.to_string());
        pod
    };
    if pods
        .space()
        .snapshot()
        .get(&format!("{}/{}", key.namespace, key.name))
        .is_none()
    {
        let text = format!(
            r#"{{"metadata":{{"name":"{}"}},"spec":{{"nodeName":"n{node}","containers":[{{"name":"c","image":"i"}}]}}}}"#,
            key.name
        );
        let mut new = labelled(draft(pods, &text));
        new.entry("metadata").set("namespace", &key.namespace);
        let create = Create::new(pods, &key.namespace, new);
        rig.registry.create(create).await.unwrap();
    } else if what == 0 {
        let options = DeleteOptions {
            grace: Some(0),
            ..DeleteOptions::default()
        };
        let deleted = rig.registry.delete(pods, key, &options, &NoAdmission);
        deleted.await.ok().unwrap();
    } else {
        let mut edit = Edit(|current: Option<&Value>| labelled(current.unwrap().clone()));
        let update = Update::new(pods, key, &mut edit);
        rig.registry.update(update).await.ok().unwrap();
    }
}

/// What a watch of some pods shows, told from what a watch of all shows.
fn narrow(
    all: &[WatchEvent],
    is_selected: impl Fn(&str, &str, &SelectablePod) -> bool,
) -> Vec<String> {
    let mut known = BTreeMap::<String, SelectablePod>::new();
    let mut expected = Vec::new();
    for event in all {
        let WatchEvent::Object(change, object) = event else {
            panic!("an object")
        };
        let object = object.value();
        let text = |part: &str, field: &str| object[part][field].str().to_owned();
        let (namespace, name) = (text("metadata", "namespace"), text("metadata", "name"));
        let pod = SelectablePod {
            label: object["metadata"]["labels"]["l"].str().parse().unwrap(),
            node: text("spec", "nodeName")[1..].parse().unwrap(),
        };
        let key = format!("{namespace}/{name}");
        let is_selected = |pod: &SelectablePod| is_selected(&namespace, &name, pod);
        let before = known.get(&key).is_some_and(is_selected);
        let after = change.word() != "DELETED" && is_selected(&pod);
        let word = match (before, after) {
            (false, false) => None,
            (false, true) => Some("ADDED"),
            (true, true) => Some("MODIFIED"),
            (true, false) => Some("DELETED"),
        };
        let version = text("metadata", "resourceVersion");
        expected.extend(word.map(|word| format!("{word} {name} {version}")));
        match change.word() {
            "DELETED" => drop(known.remove(&key)),
            _ => drop(known.insert(key, pod)),
        }
    }
    expected
}

/// All events that there are.
async fn drain(rig: &Rig, watch: &mut ResourceWatch) -> Vec<WatchEvent> {
    let mut all = Vec::new();
    while watch.progress() != Some(rig.registry.store().revision()) {
        all.extend(watch.next().await.ok().unwrap());
    }
    all
}

/// Whether a pod is in a namespace or all, has a name or any, a label or any, a node or any.
type Wanted = (&'static str, &'static str, Option<usize>, Option<usize>);

fn selection((namespace, name, label, node): Wanted) -> Selection {
    let name = (!name.is_empty()).then(|| format!("metadata.name={name}"));
    let node = node.map(|node| format!("spec.nodeName=n{node}"));
    let fields: Vec<String> = name.into_iter().chain(node).collect();
    let label = label.map(|label| format!("l={label}")).unwrap_or_default();
    Selection {
        namespace: namespace.into(),
        labels: LabelSelector::parse(&label).unwrap(),
        fields: FieldSelector::parse(&fields.join(",")).unwrap(),
    }
}

#[tokio::test]
async fn an_indexed_watch_shows_of_random_writes_what_a_watch_of_everything_does() {
    const WANTED: [Wanted; 9] = [
        ("one", "a", None, None),
        ("two", "", None, None),
        ("", "a", None, None),
        ("", "", None, Some(1)),
        ("", "", Some(1), None),
        ("one", "", Some(1), None),
        ("two", "", None, Some(0)),
        ("", "", Some(0), Some(1)),
        ("one", "b", Some(1), Some(1)),
    ];
    for rig in each_store() {
        let pods = rig.resource("v1/pods");
        let start = rig.revision();
        let mut watches = Vec::new();
        for selection in WANTED
            .map(selection)
            .into_iter()
            .chain([Selection::default()])
        {
            let options = WatchOptions {
                selection,
                version: start.clone(),
                ..WatchOptions::default()
            };
            watches.push(rig.registry.watch(&pods, options).await.ok().unwrap());
        }
        // A linear congruential generator: the same writes in each run.
        let mut state = 7_u64;
        let mut random = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % n as usize
        };
        for _ in 0..150 {
            let key = Key::new(["one", "two"][random(2)], ["a", "b", "c"][random(3)]);
            write_pod(&rig, &pods, &key, [random(4), random(2), random(2)]).await;
        }
        let mut unscoped = watches.pop().unwrap();
        let all = drain(&rig, &mut unscoped).await;
        for (wanted, mut watch) in WANTED.into_iter().zip(watches) {
            let (namespace, name, label, node) = wanted;
            let expected = narrow(&all, |at, named, pod| {
                (namespace.is_empty() || at == namespace)
                    && (name.is_empty() || named == name)
                    && label.is_none_or(|label| label == pod.label)
                    && node.is_none_or(|node| node == pod.node)
            });
            assert!(expected.len() > 5, "{wanted:?} sees something");
            let events = drain(&rig, &mut watch).await;
            let seen: Vec<_> = events.iter().map(show).collect();
            assert_eq!(seen, expected, "{wanted:?}");
        }
    }
}

#[tokio::test]
async fn a_watch_of_one_object_outlives_a_window_of_others() {
    let window = WindowLimits {
        min_events: 2,
        max_events: 2,
        ..WindowLimits::default()
    };
    for rig in each_store_with(&StoreOptions {
        window,
        ..StoreOptions::default()
    }) {
        let maps = rig.config_maps();
        rig.create(&maps, &named("a")).await.unwrap();
        let options = WatchOptions {
            selection: selected("", "metadata.name=a"),
            version: rig.revision(),
            ..WatchOptions::default()
        };
        let mut watch = rig.registry.watch(&maps, options).await.ok().unwrap();
        for number in 0..9 {
            rig.create(&maps, &named(&format!("other-{number}")))
                .await
                .unwrap();
        }
        assert_eq!(watch.progress().unwrap().to_string(), rig.revision());
        let text = r#"{"metadata":{"name":"a"},"data":{"k":"v"}}"#;
        rig.replace(&maps, text, &UpdateOptions::default())
            .await
            .unwrap();
        let expected = [format!("MODIFIED a {}", rig.revision())];
        assert_eq!(next_events(&mut watch, 1).await, expected);
    }
}
