//! In which headers do front proxies say for whom they ask?

use std::path::Path;

use clap::Args;
use mizzen_apiserver::authenticate::ProxyHeaders;

use super::refused;
use crate::compose::ComposeError;

/// The arguments of front proxies' headers.
#[derive(Args, Clone, Default)]
pub(crate) struct ProxyHeaderArgs {
    /// Take a user's name from the first of these headers of a front proxy that has one [default: X-Remote-User]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    requestheader_username_headers: Vec<String>,
    /// Take a user's uid from the first of these headers of a front proxy that has one [default: X-Remote-Uid]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    requestheader_uid_headers: Vec<String>,
    /// Take a user's groups from these headers of a front proxy [default: X-Remote-Group]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    requestheader_group_headers: Vec<String>,
    /// Take what else is said of a user from headers of a front proxy that begin so [default: X-Remote-Extra-]
    #[arg(long, value_name = "PREFIX,…", value_delimiter = ',')]
    requestheader_extra_headers_prefix: Vec<String>,
}

impl ProxyHeaderArgs {
    /// The headers.
    pub(crate) fn headers(&self) -> Result<ProxyHeaders, ComposeError> {
        let standard = ProxyHeaders::default();
        let extras = &self.requestheader_extra_headers_prefix;
        Ok(ProxyHeaders {
            users: chosen(
                "username-headers",
                &self.requestheader_username_headers,
                standard.users,
            )?,
            uids: chosen(UIDS, &self.requestheader_uid_headers, standard.uids)?,
            groups: chosen(
                "group-headers",
                &self.requestheader_group_headers,
                standard.groups,
            )?,
            extras: chosen("extra-headers-prefix", extras, standard.extras)?,
        })
    }
}

const UIDS: &str = "uid-headers";

/// What an argument says, or the standard if it says nothing. Kubernetes: one without the standard is odd, and for uids,
/// which came later, an error (server/options/authentication.go).
fn chosen(
    flag: &str,
    given: &[String],
    standard: Vec<String>,
) -> Result<Vec<String>, ComposeError> {
    if given.is_empty() {
        return Ok(standard);
    }
    let flag = format!("requestheader-{flag}");
    let refuse = |why: String| Err(refused(Path::new(&format!("--{flag}")), why));
    if given.iter().any(|name| name.trim().is_empty()) {
        return refuse(format!("empty value in {flag:?}"));
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
            true => return refuse(why),
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
    fn headers_have_names_and_the_standard_is_among_them() {
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
