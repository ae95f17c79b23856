//! What the etcd at hand can do, by the versions of its members.

use super::MemberStatus;

/// What a cluster can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Features {
    /// Whether a request for the progress of a watch is answered, and truthfully.
    ///
    /// Kubernetes: decided by the version of every endpoint that answered, and false while none has
    /// (apiserver/pkg/storage/feature/feature_support_checker.go).
    pub request_watch_progress: bool,
    /// Endpoints that did not answer. They are to be asked again, and may lack what the others have.
    pub unchecked: Vec<String>,
}

impl Features {
    /// What follows from the answers of the members.
    pub fn from_status(members: &[MemberStatus]) -> Features {
        let versions = || {
            let answers = members
                .iter()
                .filter_map(|member| member.status.as_ref().ok());
            answers.map(|status| status.version.as_str())
        };
        let unchecked = members.iter().filter(|member| member.status.is_err());
        Features {
            request_watch_progress: versions().next().is_some()
                && versions().all(has_working_progress),
            unchecked: unchecked.map(|member| member.endpoint.clone()).collect(),
        }
    }
}

/// Whether the bugs 15220 and 17507 of etcd are fixed: in 3.4.31, 3.5.13 and whatever is later. A version that cannot be
/// parsed has them.
fn has_working_progress(version: &str) -> bool {
    const V3_4_31: Version = (3, 4, 31, true);
    const V3_5_0: Version = (3, 5, 0, true);
    const V3_5_13: Version = (3, 5, 13, true);
    parse(version)
        .is_some_and(|version| version >= V3_4_31 && !(V3_5_0..V3_5_13).contains(&version))
}

/// Major, minor, patch, and whether it is a release: what comes before a release is less.
type Version = (u32, u32, u32, bool);

fn parse(version: &str) -> Option<Version> {
    let version = version.trim().trim_start_matches('v');
    let version = version.split('+').next()?;
    let (numbers, is_release) = match version.split_once('-') {
        Some((numbers, _)) => (numbers, false),
        None => (version, true),
    };
    let mut numbers = numbers.split('.').map(|number| number.parse().ok());
    let parsed = (numbers.next()??, numbers.next()??, numbers.next()??);
    numbers
        .next()
        .is_none()
        .then_some((parsed.0, parsed.1, parsed.2, is_release))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::CallError;
    use crate::messages::StatusResponse;
    use tonic::Code;

    fn member(version: Option<&str>) -> MemberStatus {
        let down = CallError::not_executed(Code::Unavailable, "down");
        MemberStatus {
            endpoint: "http://127.0.0.1:2379".into(),
            status: version.ok_or(down).map(|version| StatusResponse {
                version: version.into(),
                ..StatusResponse::default()
            }),
        }
    }

    #[test]
    fn progress_works_from_the_versions_in_which_it_was_fixed() {
        for (version, expected) in [
            ("3.3.27", false),
            ("3.4.23", false),
            ("3.4.30", false),
            ("3.4.31-rc.0", false),
            ("3.4.31", true),
            ("3.5.0", false),
            ("3.5.12", false),
            ("3.5.13-rc.1", false),
            ("3.5.13", true),
            ("3.5.21+git", true),
            ("3.6.0-rc.0", true),
            ("v3.6.4", true),
            ("4.0.0", true),
            ("3.5", false),
            ("latest", false),
            ("", false),
        ] {
            let features = Features::from_status(&[member(Some(version))]);
            assert_eq!(features.request_watch_progress, expected, "{version:?}");
        }
    }

    #[test]
    fn every_endpoint_that_answers_must_have_it() {
        let check = |versions: &[Option<&str>]| {
            let members: Vec<_> = versions.iter().copied().map(member).collect();
            let features = Features::from_status(&members);
            (features.request_watch_progress, features.unchecked.len())
        };
        assert_eq!(check(&[Some("3.6.1"), Some("3.5.13")]), (true, 0));
        assert_eq!(check(&[Some("3.6.1"), Some("3.5.12")]), (false, 0));
        assert_eq!(check(&[Some("3.6.1"), None]), (true, 1));
        assert_eq!(check(&[None, None]), (false, 2));
    }
}
