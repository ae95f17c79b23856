//! Secrets: required keys per type, and `stringData`.

use mizzen_object::validate::{field, meta};
use mizzen_object::{Action, HookContext, NameRule, Path, Violations};
use mizzen_value::{Value, json};

use super::config_map::{MAX_SIZE, keys, size, unchanged_when_immutable};
use super::{bytes, pem};
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;

pub(super) const BEHAVIOUR: Behaviour = Behaviour::of::<SecretStrategy>();

pub(super) struct SecretStrategy;

impl KindStrategy for SecretStrategy {
    fn default(secret: &mut Value) {
        if let Some(Value::Map(texts)) = secret.remove("stringData") {
            let data = secret.entry("data").make_map();
            for (key, text) in texts {
                data.insert(key, bytes::encode(text.str().as_bytes()));
            }
            data.sort();
        }
        secret.set_default("type", "Opaque");
    }

    fn validate(
        secret: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        if let (Action::Update, Some(old)) = (context.action, old) {
            field::immutable_text(
                &secret["type"],
                &old["type"],
                &Path::new("type"),
                violations,
            );
            unchanged_when_immutable(secret, old, &["data"], violations);
            meta::native_object_meta(&secret["metadata"], true, NameRule::Subdomain, violations);
        }
        let path = Path::new("data");
        keys(&secret["data"], &path, violations);
        if size(&secret["data"]) > MAX_SIZE {
            violations.too_long(path, MAX_SIZE);
        }
        let data = &secret["data"];
        let mut require = |keys: &[&str]| {
            for key in keys.iter().filter(|key| data.get(key).is_none()) {
                violations.required(path.key(key), "");
            }
        };
        match secret["type"].str() {
            "kubernetes.io/tls" => require(&["tls.crt", "tls.key"]),
            "kubernetes.io/basic-auth"
                if data.get("username").or(data.get("password")).is_none() =>
            {
                require(&["username", "password"]);
            }
            "kubernetes.io/ssh-auth" if data["ssh-privatekey"].str().is_empty() => {
                violations.required(path.key("ssh-privatekey"), "");
            }
            "kubernetes.io/dockercfg" => docker(data, ".dockercfg", &path, violations),
            "kubernetes.io/dockerconfigjson" => {
                docker(data, ".dockerconfigjson", &path, violations)
            }
            "kubernetes.io/service-account-token"
                if secret["metadata"]["annotations"][ACCOUNT_NAME]
                    .str()
                    .is_empty() =>
            {
                violations.required(
                    Path::new("metadata").child("annotations").key(ACCOUNT_NAME),
                    "",
                );
            }
            _ => {}
        }
    }

    fn warnings(secret: &Value, _: Option<&Value>, _: &HookContext) -> Vec<String> {
        if secret["type"].str() != "kubernetes.io/tls" {
            return Vec::new();
        }
        let read = |key: &str| {
            String::from_utf8_lossy(&bytes::decode(secret["data"][key].str())).into_owned()
        };
        Vec::from_iter(pem::key_pair_problem(&read("tls.crt"), &read("tls.key")))
    }
}

const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

fn docker(data: &Value, key: &str, path: &Path, violations: &mut Violations) {
    let path = path.key(key);
    let Some(content) = data.get(key) else {
        return violations.required(path, "");
    };
    let text = &bytes::decode(content.str());

    let json_map_error = match json::parse(text) {
        Ok(Value::Map(_) | Value::Null) => None,
        Ok(other) => Some(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            other.go_word()
        )),
        Err(error) => Some(error.to_string()),
    };
    if let Some(message) = json_map_error {
        violations.invalid(path, "<secret contents redacted>", &message);
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::check;
    use super::*;

    #[test]
    fn text_becomes_bytes_and_wins() {
        check(BEHAVIOUR)
            .create(r#"{"data":{"a":"b2xk","c":"eA=="},"stringData":{"a":"new","b":"plain"}}"#)
            .becomes(r#"{"data":{"a":"bmV3","b":"cGxhaW4=","c":"eA=="},"type":"Opaque"}"#);
    }

    #[test]
    fn a_type_says_what_must_be_there() {
        let refused = |ty: &str, data: &str, expected: &[&str]| {
            let secret = format!(r#"{{"type":"kubernetes.io/{ty}","stringData":{data}}}"#);
            check(BEHAVIOUR).create(&secret).refused(expected);
        };
        refused(
            "basic-auth",
            "{}",
            &[
                "data[username]: Required value",
                "data[password]: Required value",
            ],
        );
        refused("basic-auth", r#"{"password":""}"#, &[]);
        refused(
            "ssh-auth",
            r#"{"ssh-privatekey":""}"#,
            &["data[ssh-privatekey]: Required value"],
        );
        refused(
            "tls",
            r#"{"tls.crt":"a"}"#,
            &["data[tls.key]: Required value"],
        );
        refused("dockercfg", "{}", &["data[.dockercfg]: Required value"]);
        refused(
            "dockerconfigjson",
            r#"{".dockerconfigjson":"notjson"}"#,
            &[
                r#"data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": invalid character 'o' in literal null"#,
            ],
        );
        refused(
            "dockercfg",
            r#"{".dockercfg":"[]"}"#,
            &[
                r#"data[.dockercfg]: Invalid value: "<secret contents redacted>": json: cannot unmarshal array into Go"#,
            ],
        );
        refused(
            "service-account-token",
            "{}",
            &["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        );
    }

    #[test]
    fn a_type_stays() {
        let (new, old) = (
            r#"{"metadata":{"name":"a","namespace":"b"}}"#,
            r#"{"type":"x/y"}"#,
        );
        check(BEHAVIOUR)
            .update(new, old)
            .refused(&[r#"type: Invalid value: "Opaque": field is immutable"#]);
    }

    #[test]
    fn a_certificate_that_is_none_is_warned_about() {
        let secret = r#"{"type":"kubernetes.io/tls","stringData":{"tls.crt":"","tls.key":""}}"#;
        check(BEHAVIOUR)
            .create(secret)
            .warns(&["tls: failed to find any PEM data in certificate input"]);
    }
}
