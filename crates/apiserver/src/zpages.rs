//! `/statusz` and `/flagz`: the version, uptime and flags of a component.
//!
//! As text, or as the kinds Statusz and Flagz of `config.k8s.io`, if a client accepts one of them.
//! Kubernetes: apiserver/pkg/server/statusz and flagz; on by default since v1.36 (ComponentStatusz,
//! ComponentFlagz).

use std::collections::{BTreeMap, BTreeSet};

use http::{HeaderValue, header};
use mizzen_object::{GroupVersionKind, Status};
use mizzen_value::{Value, time, value};

use crate::content::http_date;
use crate::discovery::GIT_VERSION;
use crate::request::Request;
use crate::response::{self, Accept, AcceptClause, Response, ResponseEncoding, clauses};
use crate::server::ServerParts;

const GROUP: &str = "config.k8s.io";
/// APIs and documents are no debugging endpoints.
const NO_DEBUGGING: [&str; 5] = ["/apis", "/api", "/openid", "/openapi", "/.well-known"];

/// The zpages of a component.
#[derive(Debug, Clone)]
pub struct Zpages {
    /// Its name: `apiserver`, `kube-scheduler`.
    pub component: &'static str,
    /// Its flags and their values. Confidential values must be redacted.
    pub flags: BTreeMap<String, String>,
}

/// The format of a page.
enum ZpageFormat {
    Text,
    Structured(ResponseEncoding, &'static str),
}

impl Zpages {
    /// Serves `/statusz`, which lists the top-level folders of `paths`.
    pub(crate) fn statusz(
        &self,
        server: &ServerParts,
        request: &Request,
        paths: &[String],
    ) -> Result<Response, Status> {
        let folders: BTreeSet<String> = paths
            .iter()
            .filter_map(|path| path.split('/').nth(1))
            .map(|folder| format!("/{folder}"))
            .filter(|folder| folder != "/" && !NO_DEBUGGING.contains(&folder.as_str()))
            .collect();
        let (started, now) = (server.metrics.started, server.registry.now());
        let uptime = (now - started).max(0);
        let binary = GIT_VERSION.trim_start_matches('v');
        let emulated = "1.36";
        let text = || {
            let (hours, minutes, seconds) = (uptime / 3600, uptime / 60 % 60, uptime % 60);
            let paths = folders.iter().cloned().collect::<Vec<_>>().join(" ");
            format!(
                "\nStarted: {}\nUp: {hours} hr {minutes:02} min {seconds:02} sec\nGo version: \nBinary version: {binary}\n\
                 Emulation version: {emulated}\nPaths: {paths}\n",
                unix_date(started)
            )
        };
        let object = || {
            value!({
                "startTime": (time::from_unix(started)),
                "uptimeSeconds": uptime,
                "goVersion": "",
                "binaryVersion": binary,
                "emulationVersion": emulated,
                "paths": (folders.iter().map(|path| Value::from(path.as_str())).collect::<Vec<_>>()),
            })
        };
        self.serve(request, "Statusz", text, object)
    }

    /// Serves `/flagz`.
    pub(crate) fn flagz(&self, request: &Request) -> Result<Response, Status> {
        let text = || {
            let lines = self.flags.iter();
            lines
                .map(|(name, value)| format!("{name}: {value}\n"))
                .collect()
        };
        let object = || {
            let mut flags = Value::default();
            for (name, value) in &self.flags {
                flags.set(name, value.as_str());
            }
            value!({ "flags": flags })
        };
        self.serve(request, "Flagz", text, object)
    }

    fn serve(
        &self,
        request: &Request,
        kind: &'static str,
        text: impl FnOnce() -> String,
        fields: impl FnOnce() -> Value,
    ) -> Result<Response, Status> {
        let ZpageFormat::Structured(encoding, version) =
            ZpageFormat::negotiate(&request.header("accept"), kind)?
        else {
            let (component, page) = (self.component, kind.to_lowercase());
            let warning = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                guarantees and is for debugging purposes only.";
            return Ok(response::with_body(
                200,
                "text/plain; charset=utf-8",
                format!("\n{component} {page}\n{warning}\n{}", text()),
            ));
        };
        let mut object = value!({
            "kind": kind,
            "apiVersion": (format!("{GROUP}/{version}")),
            "metadata": { "name": (self.component) },
        });
        for (name, field) in fields().entries() {
            object.set(name, field.clone());
        }
        let gvk = GroupVersionKind {
            group: GROUP.into(),
            version: version.into(),
            kind: kind.into(),
        };
        let accept = Accept {
            encoding,
            ..response::negotiate_status(&request.headers, &request.query)
        };
        let mut answer = response::value(&gvk, None, &object, accept, 200);
        let media_type = format!("{};g={GROUP};v={version};as={kind}", encoding.media_type());
        if let Ok(media_type) = HeaderValue::from_str(&media_type) {
            answer
                .headers_mut()
                .insert(header::CONTENT_TYPE, media_type);
        }
        if version == "v1alpha1" {
            let page = kind.to_lowercase();
            let text = format!(
                "299 - \"This version of the {page} endpoint is deprecated. Please use a newer version.\""
            );
            if let Ok(text) = HeaderValue::from_str(&text) {
                answer.headers_mut().insert(header::WARNING, text);
            }
        }
        Ok(answer)
    }
}

impl ZpageFormat {
    /// The format that the best clause of an `Accept` header allows: text without parameters, JSON or
    /// YAML for a served kind.
    fn negotiate(accept: &str, kind: &str) -> Result<ZpageFormat, Status> {
        if accept.trim().is_empty() {
            return Ok(ZpageFormat::Text);
        }
        let structured = |clause: &AcceptClause, encoding: ResponseEncoding| {
            let version = match clause.parameter("v") {
                "v1beta1" => "v1beta1",
                "v1alpha1" => "v1alpha1",
                _ => return None,
            };
            let is_known = clause.parameter("g") == GROUP && clause.parameter("as") == kind;
            is_known.then_some(ZpageFormat::Structured(encoding, version))
        };
        let form = |clause: &AcceptClause| {
            let matches = |kind: &str, subkind: &str| {
                [kind, "*"].contains(&clause.kind) && [subkind, "*"].contains(&clause.subkind)
            };
            let json =
                matches("application", "json").then(|| structured(clause, ResponseEncoding::Json));
            let yaml = || {
                matches("application", "yaml").then(|| structured(clause, ResponseEncoding::Yaml))
            };
            let is_text = matches("text", "plain") && clause.parameter("as").is_empty();
            json.flatten()
                .or_else(|| yaml().flatten())
                .or_else(|| is_text.then_some(ZpageFormat::Text))
        };
        clauses(accept).iter().find_map(form).ok_or_else(|| {
            let offered = "application/json, application/yaml, text/plain";
            let message = format!("only the following media types are accepted: {offered}");
            Status::failure(406, "NotAcceptable", message)
        })
    }
}

/// A time as Go's `time.UnixDate`.
fn unix_date(seconds: i64) -> String {
    let date = http_date(seconds, "UTC");
    match date.split(' ').collect::<Vec<_>>()[..] {
        [weekday, day, month, year, time, zone] => {
            let (weekday, day) = (weekday.trim_end_matches(','), day.trim_start_matches('0'));
            format!("{weekday} {month} {day:>2} {time} {zone} {year}")
        }
        _ => date,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_unix_does() {
        assert_eq!(unix_date(1_794_840_476), "Mon Nov 16 14:47:56 UTC 2026");
        assert_eq!(unix_date(0), "Thu Jan  1 00:00:00 UTC 1970");
    }

    #[test]
    fn a_structured_form_needs_group_version_and_kind() {
        let form = |accept| match ZpageFormat::negotiate(accept, "Statusz") {
            Ok(ZpageFormat::Text) => "text".to_owned(),
            Ok(ZpageFormat::Structured(encoding, version)) => {
                format!("{} {version}", encoding.media_type())
            }
            Err(status) => status.code.to_string(),
        };
        for (accept, expected) in [
            ("", "text"),
            ("*/*", "text"),
            ("text/*", "text"),
            ("text/plain;as=Statusz", "406"),
            ("text/html", "406"),
            ("application/json", "406"),
            ("application/json, */*;q=0.1", "text"),
            ("application/json;v=v1beta1;g=config.k8s.io;as=Flagz", "406"),
            ("application/json;v=v1;g=config.k8s.io;as=Statusz", "406"),
            (
                "application/json;v=v1beta1;g=config.k8s.io;as=Statusz",
                "application/json v1beta1",
            ),
            (
                "application/yaml;v=v1alpha1;g=config.k8s.io;as=Statusz",
                "application/yaml v1alpha1",
            ),
            (
                "*/*;v=v1beta1;g=config.k8s.io;as=Statusz",
                "application/json v1beta1",
            ),
        ] {
            assert_eq!(form(accept), expected, "{accept}");
        }
    }
}
