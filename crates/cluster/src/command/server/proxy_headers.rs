//! The headers in which front proxies name the user.

use std::path::Path;

use clap::Args;
use mizzen_authentication::ProxyHeaders;

use super::invalid_file;
use crate::compose::ComposeError;

/// The arguments of front proxy headers.
#[derive(Args, Clone, Default)]
pub(crate) struct ProxyHeaderArgs {
    /// Read the user name from the first of these headers that a front proxy sets [default: X-Remote-User]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    requestheader_username_headers: Vec<String>,
    /// Read the UID from the first of these headers that a front proxy sets [default: X-Remote-Uid]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    requestheader_uid_headers: Vec<String>,
    /// Read groups from these headers of a front proxy [default: X-Remote-Group]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    requestheader_group_headers: Vec<String>,
    /// Read extra values of the user from headers with these prefixes [default: X-Remote-Extra-]
    #[arg(long, value_name = "PREFIX,…", value_delimiter = ',')]
    requestheader_extra_headers_prefix: Vec<String>,
}

impl ProxyHeaderArgs {
    /// The headers.
    pub(crate) fn headers(&self) -> Result<ProxyHeaders, ComposeError> {
        let standard = ProxyHeaders::default();
        let extras = &self.requestheader_extra_headers_prefix;
        Ok(ProxyHeaders {
            users: headers_or_standard(
                "username-headers",
                &self.requestheader_username_headers,
                standard.users,
            )?,
            uids: headers_or_standard(UIDS, &self.requestheader_uid_headers, standard.uids)?,
            groups: headers_or_standard(
                "group-headers",
                &self.requestheader_group_headers,
                standard.groups,
            )?,
            extras: headers_or_standard("extra-headers-prefix", extras, standard.extras)?,
        })
    }
}

const UIDS: &str = "uid-headers";

/// The headers of an argument, by default the standard ones. Kubernetes: headers without the standard one are a warning, and
/// for UIDs an error (server/options/authentication.go).
fn headers_or_standard(
    flag: &str,
    given: &[String],
    standard: Vec<String>,
) -> Result<Vec<String>, ComposeError> {
    if given.is_empty() {
        return Ok(standard);
    }
    let flag = format!("requestheader-{flag}");
    let invalid = |why: String| Err(invalid_file(Path::new(&format!("--{flag}")), why));
    if given.iter().any(|name| name.trim().is_empty()) {
        return invalid(format!("empty value in {flag:?}"));
    }
    for name in &standard {
        if given.iter().any(|own| own.eq_ignore_ascii_case(name)) {
            continue;
        }
        let what = if name.ends_with('-') {
            "header prefix"
        } else {
            "header"
        };
        let why = format!(
            "--{flag} is set without specifying the standard {name} {what} - API aggregation will not work"
        );
        match flag.ends_with(UIDS) {
            true => return invalid(why),
            false => tracing::warn!("{why}"),
        }
    }
    Ok(given.iter().map(|name| name.trim().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: &[&str], expected: Result<&[&str], &str>) {
        let given = given.iter().map(|name| name.to_string()).collect();
        let args = ProxyHeaderArgs {
            requestheader_uid_headers: given,
            ..Default::default()
        };
        match (args.headers(), expected) {
            (Ok(headers), Ok(expected)) => assert_eq!(headers.uids, expected),
            (Err(error), Err(expected)) => {
                assert!(error.to_string().ends_with(expected), "{error}")
            }
            (found, _) => panic!("{:?}", found.map_err(|error| error.to_string())),
        }
    }

    #[test]
    fn headers_must_include_the_standard_one() {
        check(&[], Ok(&["X-Remote-Uid"]));
        check(
            &["X-Mesh-Uid", "x-remote-uid"],
            Ok(&["X-Mesh-Uid", "x-remote-uid"]),
        );
        check(
            &["X-Remote-Uid", " "],
            Err("empty value in \"requestheader-uid-headers\""),
        );
        let odd = "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API aggregation will not work";
        check(&["X-Mesh-Uid"], Err(odd));
    }
}
