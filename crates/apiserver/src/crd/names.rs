//! The accepted names of a CustomResourceDefinition: those that no other definition of its group has.
//!
//! Kubernetes: the first definition keeps a name; a later one waits until it is free (controller/status).

use imbl::HashMap;
use mizzen_object::aggregate;
use mizzen_value::{Str, Value, json, value};

/// The names of a custom resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct DefinitionNames {
    pub plural: Str,
    pub singular: Str,
    pub short_names: Vec<Str>,
    pub kind: Str,
    pub list_kind: Str,
    pub categories: Vec<Str>,
}

impl DefinitionNames {
    pub(crate) fn read(names: &Value) -> DefinitionNames {
        let texts = |list: &Value| list.list().iter().map(|text| text.str().into()).collect();
        DefinitionNames {
            plural: names["plural"].str().into(),
            singular: names["singular"].str().into(),
            short_names: texts(&names["shortNames"]),
            kind: names["kind"].str().into(),
            list_kind: names["listKind"].str().into(),
            categories: texts(&names["categories"]),
        }
    }

    pub(crate) fn to_value(&self) -> Value {
        let texts = |list: &[Str]| list.iter().map(Value::from).collect::<Vec<_>>();
        let mut names = value!({ "plural": (&self.plural), "kind": (&self.kind) });
        for (field, text) in [("singular", &self.singular), ("listKind", &self.list_kind)] {
            if !text.is_empty() {
                names.set(field, text);
            }
        }
        for (field, list) in [
            ("shortNames", &self.short_names),
            ("categories", &self.categories),
        ] {
            if !list.is_empty() {
                names.set(field, texts(list));
            }
        }
        names
    }
}

/// The names that are in use in a group, each with the number of definitions that have it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct TakenNames {
    resources: HashMap<Str, usize>,
    kinds: HashMap<Str, usize>,
}

impl TakenNames {
    pub(crate) fn add(&mut self, names: &DefinitionNames) {
        self.count(names, |n| n + 1);
    }

    pub(crate) fn remove(&mut self, names: &DefinitionNames) {
        self.count(names, |n| n - 1);
    }

    fn count(&mut self, names: &DefinitionNames, change: impl Fn(usize) -> usize) {
        let each = |taken: &mut HashMap<Str, usize>, name: &Str| {
            let n = change(taken.get(name).copied().unwrap_or_default());
            match n {
                0 => taken.remove(name),
                n => taken.insert(name.clone(), n),
            };
        };
        each(&mut self.resources, &names.plural);
        each(&mut self.resources, &names.singular);
        for name in &names.short_names {
            each(&mut self.resources, name);
        }
        each(&mut self.kinds, &names.kind);
        each(&mut self.kinds, &names.list_kind);
    }
}

/// A name that another definition has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NameConflict {
    pub reason: &'static str,
    pub message: String,
}

/// The names that a definition gets: the requested ones, and where these are taken the previous ones. Of several conflicts
/// the last one is reported.
pub(crate) fn accept_names(
    requested: &DefinitionNames,
    previous: &DefinitionNames,
    taken: &TakenNames,
) -> (DefinitionNames, Option<NameConflict>) {
    let mut names = DefinitionNames {
        categories: requested.categories.clone(),
        ..previous.clone()
    };
    let TakenNames { resources, kinds } = taken;
    let accept = |name: &Str, into: &mut Str, taken: &HashMap<Str, usize>, reason| {
        if name == into || !taken.contains_key(name) {
            *into = name.clone();
            return None;
        }
        let message = in_use(name);
        Some(NameConflict { reason, message })
    };
    let added = requested
        .short_names
        .iter()
        .filter(|name| !previous.short_names.contains(name));
    let in_use = added
        .filter(|name| resources.contains_key(*name))
        .map(|name| in_use(name));
    let short_names = aggregate(in_use).map(|message| NameConflict {
        reason: "ShortNamesConflict",
        message,
    });
    if short_names.is_none() {
        names.short_names = requested.short_names.clone();
    }
    let (plural, singular) = (&mut names.plural, &mut names.singular);
    let (kind, list_kind) = (&mut names.kind, &mut names.list_kind);
    let conflicts = [
        accept(&requested.plural, plural, resources, "PluralConflict"),
        accept(&requested.singular, singular, resources, "SingularConflict"),
        short_names,
        accept(&requested.kind, kind, kinds, "KindConflict"),
        accept(&requested.list_kind, list_kind, kinds, "ListKindConflict"),
    ];
    (names, conflicts.into_iter().flatten().next_back())
}

fn in_use(name: &str) -> String {
    format!("{} is already in use", json::quote(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> DefinitionNames {
        DefinitionNames::read(&json::parse(text.as_bytes()).unwrap())
    }

    #[track_caller]
    fn check(requested: &str, previous: &str, existing: &str, accepted: &str, conflict: &str) {
        let mut taken = TakenNames::default();
        taken.add(&names(existing));
        let (names, found) = accept_names(&names(requested), &names(previous), &taken);
        assert_eq!(json::to_string(&names.to_value()), accepted);
        let found = found
            .map(|found| format!("{}: {}", found.reason, found.message))
            .unwrap_or_default();
        assert_eq!(found, conflict);
    }

    const FOO: &str = r#"{"plural":"foos","singular":"foo","kind":"Foo","listKind":"FooList"}"#;

    #[test]
    fn free_names_are_accepted() {
        check(
            FOO,
            "{}",
            "{}",
            r#"{"plural":"foos","kind":"Foo","singular":"foo","listKind":"FooList"}"#,
            "",
        );
    }

    #[test]
    fn a_conflicting_name_is_left_out_and_the_last_conflict_is_reported() {
        let bar = r#"{"plural":"bars","singular":"foo","kind":"Foo","listKind":"FooList"}"#;
        let why = "ListKindConflict: \"FooList\" is already in use";
        check(bar, "{}", FOO, r#"{"plural":"bars","kind":""}"#, why);
    }

    #[test]
    fn short_names_are_accepted_together_or_not_at_all() {
        let requested = r#"{"plural":"bars","kind":"Bar","shortNames":["b","foo","foos"]}"#;
        let why = "ShortNamesConflict: [\"foo\" is already in use, \"foos\" is already in use]";
        check(
            requested,
            "{}",
            FOO,
            r#"{"plural":"bars","kind":"Bar"}"#,
            why,
        );
    }

    #[test]
    fn a_definition_does_not_conflict_with_itself() {
        let more = r#"{"plural":"foos","singular":"foo","kind":"Foo","listKind":"FooList","shortNames":["f"]}"#;
        let all = r#"{"plural":"foos","kind":"Foo","singular":"foo","listKind":"FooList","shortNames":["f"]}"#;
        check(more, FOO, FOO, all, "");
    }
}
