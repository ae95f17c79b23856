//! Label and field selectors of lists and watches, in every combination, against a filter that looks at every object.
//! `MIZZEN_SEED=n` plays another world.

use std::collections::BTreeMap;

use mizzen_value::{Value, json};

use crate::crd::DEFINITIONS;
use crate::rig::{Events, Rig};

const NAMES: [&str; 3] = ["x", "y", "z"];
const NAMESPACES: [&str; 2] = ["a", "b"];

/// A kind to select from, and its one selectable field besides name and namespace.
struct Subject {
    group: &'static str,
    plural: &'static str,
    namespaced: bool,
    field: &'static str,
    values: [&'static str; 2],
    object: &'static str,
}

const SUBJECTS: [Subject; 4] = [
    Subject {
        group: "/api/v1",
        plural: "events",
        namespaced: true,
        field: "reason",
        values: ["One", "Two"],
        object: r#"{"metadata":META,"involvedObject":{"namespace":"NAMESPACE"},"reason":"VALUE"}"#,
    },
    Subject {
        group: "/api/v1",
        plural: "nodes",
        namespaced: false,
        field: "spec.unschedulable",
        values: ["false", "true"],
        object: r#"{"metadata":META,"spec":{"unschedulable":VALUE}}"#,
    },
    Subject {
        group: "/apis/example.com/v1",
        plural: "foos",
        namespaced: true,
        field: "spec.color",
        values: ["red", "blue"],
        object: r#"{"apiVersion":"example.com/v1","kind":"Foos","metadata":META,"spec":{"color":"VALUE"}}"#,
    },
    Subject {
        group: "/apis/example.com/v1",
        plural: "bars",
        namespaced: false,
        field: "spec.color",
        values: ["red", "blue"],
        object: r#"{"apiVersion":"example.com/v1","kind":"Bars","metadata":META,"spec":{"color":"VALUE"}}"#,
    },
];

impl Subject {
    fn collection(&self, namespace: &str) -> String {
        match namespace {
            "" => format!("{}/{}", self.group, self.plural),
            _ => format!("{}/namespaces/{namespace}/{}", self.group, self.plural),
        }
    }

    /// The object that a key of the world stands for.
    fn body(&self, (namespace, name): &Key, (label, value): &Content) -> String {
        let label = if label.is_empty() {
            String::new()
        } else {
            format!(r#""l":"{label}""#)
        };
        let placed = if namespace.is_empty() {
            String::new()
        } else {
            format!(r#","namespace":"{namespace}""#)
        };
        let meta = format!(r#"{{"name":"{name}"{placed},"labels":{{{label}}}}}"#);
        self.object
            .replace("META", &meta)
            .replace("NAMESPACE", namespace)
            .replace("VALUE", value)
    }

    fn keys(&self) -> Vec<Key> {
        let namespaces: &[&'static str] = if self.namespaced { &NAMESPACES } else { &[""] };
        let keys = namespaces
            .iter()
            .flat_map(|namespace| NAMES.map(|name| (*namespace, name)));
        keys.collect()
    }
}

/// Namespace and name.
type Key = (&'static str, &'static str);
/// The label `l`, empty for none, and the value of the subject's field.
type Content = (&'static str, &'static str);
type World = BTreeMap<Key, Content>;

/// Whether an object is selected.
type Selects = Box<dyn Fn(&Key, &Content) -> bool>;

/// One field or label requirement: its text, and whether it selects.
type Term = (String, Selects);

/// One list or watch: where, the query without the mode, and the naive filter.
struct Case {
    namespace: &'static str,
    query: String,
    selects: Vec<Selects>,
}

impl Case {
    fn expected(&self, world: &World) -> Vec<String> {
        let here = |key: &Key| self.namespace.is_empty() || key.0 == self.namespace;
        let selected = world.iter().filter(|(key, content)| {
            here(key) && self.selects.iter().all(|selects| selects(key, content))
        });
        selected.map(|(key, _)| show(key.0, key.1)).collect()
    }
}

fn show(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

fn field_terms(
    field: &str,
    value: &'static str,
    of: fn(&Key, &Content) -> &'static str,
) -> Vec<Option<Term>> {
    let equal = move |key: &Key, content: &Content| of(key, content) == value;
    vec![
        None,
        Some((format!("{field}={value}"), Box::new(equal))),
        Some((format!("{field}=={value}"), Box::new(equal))),
        Some((
            format!("{field}!={value}"),
            Box::new(move |key, content| !equal(key, content)),
        )),
    ]
}

fn label_terms() -> Vec<Option<Term>> {
    let label = |_: &Key, content: &Content| content.0;
    vec![
        None,
        Some((
            "l=1".into(),
            Box::new(move |key, content| label(key, content) == "1"),
        )),
        Some((
            "l!=1".into(),
            Box::new(move |key, content| label(key, content) != "1"),
        )),
        Some((
            "l in (1,2)".into(),
            Box::new(move |key, content| !label(key, content).is_empty()),
        )),
        Some((
            "!l".into(),
            Box::new(move |key, content| label(key, content).is_empty()),
        )),
    ]
}

/// Every combination of places and requirements.
fn cases(subject: &Subject) -> Vec<Case> {
    let places: &[&'static str] = if subject.namespaced {
        &["", "a", "b", "none"]
    } else {
        &[""]
    };
    let mut cases = Vec::new();
    let (names, namespaces) = (4, if subject.namespaced { 4 } else { 1 });
    for place in places {
        for number in 0..names * namespaces * 4 * 5 {
            let (name, rest) = (number % names, number / names);
            let (namespace, rest) = (rest % namespaces, rest / namespaces);
            let (value, label) = (rest % 4, rest / 4);
            let mut fields = [
                field_terms("metadata.name", "x", |key, _| key.1).swap_remove(name),
                field_terms("metadata.namespace", "a", |key, _| key.0).swap_remove(namespace),
                field_terms(subject.field, subject.values[0], |_, content| content.1)
                    .swap_remove(value),
            ];
            let (mut texts, mut selects) = (Vec::new(), Vec::new());
            for (text, term) in fields.iter_mut().filter_map(Option::take) {
                texts.push(text);
                selects.push(term);
            }
            let mut query = format!("fieldSelector={}", code(&texts.join(",")));
            if let Some((text, term)) = label_terms().swap_remove(label) {
                query += &format!("&labelSelector={}", code(&text));
                selects.push(term);
            }
            cases.push(Case {
                namespace: place,
                query,
                selects,
            });
        }
    }
    cases
}

/// Encodes what cannot stand in a query.
fn code(text: &str) -> String {
    text.replace('=', "%3D")
        .replace('!', "%21")
        .replace(' ', "%20")
        .replace(',', "%2C")
}

/// Chance from a seed.
struct Dice(u64);

impl Dice {
    fn new() -> Dice {
        let seed = std::env::var("MIZZEN_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok())
            .unwrap_or(15);
        println!("MIZZEN_SEED={seed}");
        Dice(seed)
    }

    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn content(&mut self, subject: &Subject) -> Content {
        (["", "1", "2"][self.below(3)], subject.values[self.below(2)])
    }
}

async fn rig() -> Rig {
    let rig = Rig::new().await;
    for namespace in NAMESPACES {
        rig.post(
            "/api/v1/namespaces",
            &format!(r#"{{"metadata":{{"name":"{namespace}"}}}}"#),
        )
        .await
        .expect(201);
    }
    for (plural, kind, scope) in [("foos", "Foos", "Namespaced"), ("bars", "Bars", "Cluster")] {
        let definition = format!(
            r#"{{"metadata":{{"name":"{plural}.example.com"}},"spec":{{"group":"example.com","scope":"{scope}",
            "names":{{"plural":"{plural}","kind":"{kind}"}},"versions":[{{"name":"v1","served":true,"storage":true,
            "selectableFields":[{{"jsonPath":".spec.color"}}],"schema":{{"openAPIV3Schema":{{"type":"object",
            "properties":{{"spec":{{"type":"object","properties":{{"color":{{"type":"string"}}}}}}}}}}}}}}]}}}}"#
        );
        rig.post(DEFINITIONS, &definition).await.expect(201);
    }
    rig
}

/// Changes one object of the world: makes, replaces or deletes it.
async fn change(rig: &Rig, subject: &Subject, world: &mut World, dice: &mut Dice) {
    let keys = subject.keys();
    let key = keys[dice.below(keys.len())];
    let path = format!("{}/{}", subject.collection(key.0), key.1);
    let is_new = !world.contains_key(&key);
    if is_new {
        let content = dice.content(subject);
        rig.post(&subject.collection(key.0), &subject.body(&key, &content))
            .await
            .expect(201);
        world.insert(key, content);
    } else if dice.below(3) == 0 {
        rig.delete(&path, "").await.expect(200);
        world.remove(&key);
    } else {
        let content = dice.content(subject);
        let mut body = json::parse(subject.body(&key, &content).as_bytes()).unwrap();
        let version = rig.get(&path).await.expect(200).version();
        body.entry("metadata")
            .set("resourceVersion", version.to_string());
        rig.put(&path, &json::to_string(&body)).await.expect(200);
        world.insert(key, content);
    }
}

fn key_of(object: &Value) -> String {
    show(
        object.at("metadata.namespace").str(),
        object.at("metadata.name").str(),
    )
}

/// Reads a list, page by page if there are pages.
async fn list(rig: &Rig, path: &str, query: &str) -> Vec<String> {
    let (mut found, mut token) = (Vec::new(), String::new());
    loop {
        // A version is not allowed beside a token.
        let query = match token.is_empty() {
            true => query.to_owned(),
            false => format!(
                "{}&continue={token}",
                query.split("&resourceVersion").next().unwrap()
            ),
        };
        let page = rig.get(&format!("{path}?{query}")).await.expect(200);
        found.extend(page.body["items"].list().iter().map(key_of));
        token = page.body.at("metadata.continue").str().to_owned();
        if token.is_empty() {
            return found;
        }
    }
}

#[tokio::test]
async fn lists_select_what_a_naive_filter_selects() {
    let (rig, mut dice) = (rig().await, Dice::new());
    for subject in &SUBJECTS {
        let mut world = World::new();
        for _ in 0..12 {
            change(&rig, subject, &mut world, &mut dice).await;
        }
        let version = rig.get(&subject.collection("")).await.expect(200).version();
        for case in cases(subject) {
            let limit = ["", "&limit=1", "&limit=2"][dice.below(3)];
            let at = match dice.below(4) {
                0 => String::new(),
                1 => "&resourceVersion=0".into(),
                2 => format!("&resourceVersion={version}"),
                _ => format!("&resourceVersion={version}&resourceVersionMatch=Exact"),
            };
            let query = format!("{}{limit}{at}", case.query);
            let found = list(&rig, &subject.collection(case.namespace), &query).await;
            let place = subject.collection(case.namespace);
            assert_eq!(found, case.expected(&world), "{place}?{query}");
        }
    }
}

/// Reads a watch to its end, and gives back what is to be seen then; every event must fit what was seen before.
async fn drain(mut events: Events, mut seen: Vec<String>, request: String) -> Vec<String> {
    while let Some(event) = events.next().await {
        let (word, key) = (event["type"].str(), key_of(&event["object"]));
        let at = seen.iter().position(|seen| *seen == key);
        match (word, at) {
            ("ADDED", None) => seen.push(key),
            ("MODIFIED", Some(_)) => {}
            ("DELETED", Some(at)) => drop(seen.remove(at)),
            _ => panic!("{word} {key} at {at:?} in {request}"),
        }
    }
    seen.sort();
    seen
}

#[tokio::test(start_paused = true)]
async fn watches_select_what_a_naive_filter_selects() {
    let (rig, mut dice) = (rig().await, Dice::new());
    for subject in &SUBJECTS {
        let mut world = World::new();
        for _ in 0..8 {
            change(&rig, subject, &mut world, &mut dice).await;
        }
        let version = rig.get(&subject.collection("")).await.expect(200).version();
        let mut watches = Vec::new();
        for case in cases(subject) {
            // From a version on, a watch tells changes alone.
            let (at, seen) = match dice.below(3) {
                0 => (String::new(), Vec::new()),
                1 => ("&resourceVersion=0".into(), Vec::new()),
                _ => (format!("&resourceVersion={version}"), case.expected(&world)),
            };
            let path = subject.collection(case.namespace);
            let request = format!("{path}?watch=1&timeoutSeconds=5&{}{at}", case.query);
            let events = rig.watch(&request).await;
            watches.push((
                case,
                request.clone(),
                tokio::spawn(drain(events, seen, request)),
            ));
        }
        for _ in 0..12 {
            change(&rig, subject, &mut world, &mut dice).await;
        }
        for (case, request, drained) in watches {
            assert_eq!(drained.await.unwrap(), case.expected(&world), "{request}");
        }
    }
}
