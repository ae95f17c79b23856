//! What a pod gets from its RuntimeClass: what the runtime costs, and where it is found.

use mizzen_object::{Status, Value};

use super::Attributes;

const DIFFERENT: &str =
    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

/// Gives a new pod what its class says.
pub(super) fn admit(attributes: &Attributes, pod: &mut Value) -> Result<(), Status> {
    if !attributes.is_main("", "pods") || !attributes.is_create() {
        return Ok(());
    }
    let Some(class) = class(attributes, pod)? else {
        return Ok(());
    };
    let outcome =
        set_overhead(&class, pod).and_then(|()| set_scheduling(&class["scheduling"], pod));
    outcome.map_err(|why| attributes.forbidden(pod, &why))
}

/// Whether a new pod costs what its class says.
pub(super) fn check(attributes: &Attributes, pod: &Value) -> Result<(), Status> {
    if !attributes.is_main("", "pods") || !attributes.is_create() {
        return Ok(());
    }
    let class = class(attributes, pod)?.unwrap_or_default();
    let (wanted, found) = (&class["overhead"], &pod["spec"]["overhead"]);
    let why = match wanted.is_null() {
        true if found.is_empty() => return Ok(()),
        true => {
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        }
        false if same_overhead(wanted, found) => return Ok(()),
        false => DIFFERENT,
    };
    Err(attributes.forbidden(pod, why))
}

fn class(attributes: &Attributes, pod: &Value) -> Result<Option<Value>, Status> {
    let Some(name) = pod["spec"]["runtimeClassName"].as_str() else {
        return Ok(None);
    };
    let found = attributes.find("node.k8s.io", "runtimeclasses", "", name);
    found.map(Some).ok_or_else(|| {
        attributes.forbidden(
            pod,
            &format!("pod rejected: RuntimeClass \"{name}\" not found"),
        )
    })
}

fn same_overhead(wanted: &Value, found: &Value) -> bool {
    wanted["podFixed"] == *found || wanted["podFixed"].is_empty() && found.is_empty()
}

fn set_overhead(class: &Value, pod: &mut Value) -> Result<(), String> {
    let wanted = &class["overhead"];
    if wanted.is_null() {
        return Ok(());
    }
    let spec = pod.entry("spec");
    if !spec["overhead"].is_empty() && !same_overhead(wanted, &spec["overhead"]) {
        return Err(DIFFERENT.into());
    }
    spec.set("overhead", wanted["podFixed"].clone());
    Ok(())
}

fn set_scheduling(scheduling: &Value, pod: &mut Value) -> Result<(), String> {
    if scheduling.is_null() {
        return Ok(());
    }
    let spec = pod.entry("spec");
    for (key, wanted) in scheduling["nodeSelector"].entries() {
        let (wanted, found) = (wanted.str(), spec["nodeSelector"][key].as_str());
        if let Some(found) = found.filter(|found| *found != wanted) {
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; pod.spec.nodeSelector[{key}] = {found}"
            ));
        }
        spec.entry("nodeSelector").set(key, wanted);
    }
    let tolerations = merged(spec["tolerations"].list(), scheduling["tolerations"].list());
    spec.set("tolerations", tolerations);
    Ok(())
}

/// Both lists without what another toleration covers.
fn merged(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut merged: Vec<Value> = Vec::new();
    for (index, toleration) in all.iter().enumerate() {
        let covered_before = merged.iter().any(|other| covers(other, toleration));
        let covered_after = all[index + 1..]
            .iter()
            .any(|other| other != toleration && covers(other, toleration));
        if !covered_before && !covered_after {
            merged.push((*toleration).clone());
        }
    }
    merged
}

/// Whether all that `small` tolerates is tolerated by `large` too.
fn covers(large: &Value, small: &Value) -> bool {
    if large == small {
        return true;
    }
    let exists = large["operator"].str() == "Exists";
    let key = large["key"].str() == small["key"].str() || large["key"].is_empty() && exists;
    let effect = large["effect"].is_empty() || large["effect"].str() == small["effect"].str();
    let long_enough = match (large["effect"].str(), large["tolerationSeconds"].as_int()) {
        ("NoExecute", Some(long)) => small["tolerationSeconds"]
            .as_int()
            .is_some_and(|short| short <= long),
        _ => true,
    };
    let value = match large["operator"].str() {
        "" | "Equal" => {
            small["operator"].str() == "Equal" && large["value"].str() == small["value"].str()
        }
        _ => exists,
    };
    key && effect && long_enough && value
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_object::json;

    #[track_caller]
    fn check(first: &str, second: &str, expected: &str) {
        let read = |text: &str| json::parse(text.as_bytes()).unwrap();
        let merged = merged(read(first).list(), read(second).list());
        assert_eq!(json::to_string(&Value::List(merged)), expected);
    }

    #[test]
    fn what_another_toleration_covers_is_left_out() {
        check(
            r#"[{"key":"a"}]"#,
            r#"[{"key":"a"},{"key":"b"}]"#,
            r#"[{"key":"a"},{"key":"b"}]"#,
        );
        let short =
            r#"[{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":3}]"#;
        check(
            short,
            r#"[{"operator":"Exists"}]"#,
            r#"[{"operator":"Exists"}]"#,
        );
        check(
            r#"[{"operator":"Exists"}]"#,
            short,
            r#"[{"operator":"Exists"}]"#,
        );
    }
}
