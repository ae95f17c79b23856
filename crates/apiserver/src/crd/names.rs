//! Which names may a definition have? Those that nobody else in its group has.
//!
//! Kubernetes: whoever asked first keeps a name; who asks later waits until it is free (controller/status).

use imbl::HashMap;
use mizzen_object::in_one;
use mizzen_value::{Str, Value, json, value};

/// What a kind is called.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Names {
    pub plural: Str,
    pub singular: Str,
    pub short_names: Vec<Str>,
    pub kind: Str,
    pub list_kind: Str,
    pub categories: Vec<Str>,
}

impl Names {
    pub(crate) fn read(names: &Value) -> Names {
        let texts = |list: &Value| list.list().iter().map(|text| text.str().into()).collect();
        Names {
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

/// The names in a group that are given away, each with how many definitions have it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Taken {
    resources: HashMap<Str, usize>,
    kinds: HashMap<Str, usize>,
}

impl Taken {
    pub(crate) fn add(&mut self, names: &Names) {
        self.count(names, |n| n + 1);
    }

    pub(crate) fn remove(&mut self, names: &Names) {
        self.count(names, |n| n - 1);
    }

    fn count(&mut self, names: &Names, change: impl Fn(usize) -> usize) {
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

/// A name that somebody else has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub reason: &'static str,
    pub message: String,
}

/// The names that a definition gets: what it asks for where it can, and what it had where it cannot. Of several
/// conflicts the last one is told.
pub(crate) fn accept(asked: &Names, had: &Names, taken: &Taken) -> (Names, Option<Conflict>) {
    let mut names = Names {
        categories: asked.categories.clone(),
        ..had.clone()
    };
    let mut conflict = None;
    let one = |asked: &Str, had: &mut Str, taken: &HashMap<Str, usize>, reason: &'static str| {
        if asked == had || !taken.contains_key(asked) {
            *had = asked.clone();
            return None;
        }
        Some(Conflict {
            reason,
            message: in_use(asked),
        })
    };
    conflict = one(
        &asked.plural,
        &mut names.plural,
        &taken.resources,
        "PluralConflict",
    )
    .or(conflict);
    conflict = one(
        &asked.singular,
        &mut names.singular,
        &taken.resources,
        "SingularConflict",
    )
    .or(conflict);
    match accept_short(asked, had, taken) {
        Ok(short_names) => names.short_names = short_names,
        Err(message) => {
            conflict = Some(Conflict {
                reason: "ShortNamesConflict",
                message,
            })
        }
    }
    conflict = one(&asked.kind, &mut names.kind, &taken.kinds, "KindConflict").or(conflict);
    conflict = one(
        &asked.list_kind,
        &mut names.list_kind,
        &taken.kinds,
        "ListKindConflict",
    )
    .or(conflict);
    (names, conflict)
}

fn accept_short(asked: &Names, had: &Names, taken: &Taken) -> Result<Vec<Str>, String> {
    let fresh = asked
        .short_names
        .iter()
        .filter(|name| !had.short_names.contains(name));
    let conflicts = fresh
        .filter(|name| taken.resources.contains_key(*name))
        .map(|name| in_use(name));
    in_one(conflicts).map_or_else(|| Ok(asked.short_names.clone()), Err)
}

fn in_use(name: &str) -> String {
    format!("{} is already in use", json::quote(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Names {
        Names::read(&json::parse(text.as_bytes()).unwrap())
    }

    #[track_caller]
    fn check(asked: &str, had: &str, others: &str, accepted: &str, conflict: &str) {
        let mut taken = Taken::default();
        taken.add(&names(others));
        let (names, found) = accept(&names(asked), &names(had), &taken);
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
    fn a_taken_name_is_left_out_and_the_last_conflict_is_told() {
        let bar = r#"{"plural":"bars","singular":"foo","kind":"Foo","listKind":"FooList"}"#;
        let why = "ListKindConflict: \"FooList\" is already in use";
        check(bar, "{}", FOO, r#"{"plural":"bars","kind":""}"#, why);
    }

    #[test]
    fn short_names_are_accepted_together_or_not_at_all() {
        let asked = r#"{"plural":"bars","kind":"Bar","shortNames":["b","foo","foos"]}"#;
        let why = "ShortNamesConflict: [\"foo\" is already in use, \"foos\" is already in use]";
        check(asked, "{}", FOO, r#"{"plural":"bars","kind":"Bar"}"#, why);
    }

    #[test]
    fn what_somebody_has_is_no_conflict_with_himself() {
        let more = r#"{"plural":"foos","singular":"foo","kind":"Foo","listKind":"FooList","shortNames":["f"]}"#;
        let all = r#"{"plural":"foos","kind":"Foo","singular":"foo","listKind":"FooList","shortNames":["f"]}"#;
        check(more, FOO, FOO, all, "");
    }
}
