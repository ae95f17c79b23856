//! Who a client certificate belongs to: its common name is the user, its organisations are the groups, and an
//! attribute of Kubernetes' own is the uid.

use mizzen_object::Str;
use x509_parser::der_parser::oid::Oid;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::X509Name;

use crate::identity::User;

/// The attribute of a subject that holds the user's uid.
pub const UID: &[u64] = &[1, 3, 6, 1, 4, 1, 57683, 2];

/// The name and the user that a certificate shows, whoever has signed it.
pub(crate) fn named(certificate: &[u8]) -> Option<(Str, User)> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let name: Str = subject.iter_common_name().next()?.as_str().ok().filter(|name| !name.is_empty())?.into();
    Some((name.clone(), user(name, subject)?))
}

fn user(name: Str, subject: &X509Name) -> Option<User> {
    let mut groups: Vec<_> =
        subject.iter_organization().filter_map(|group| group.as_str().ok()).map(Into::into).collect();
    groups.push("system:authenticated".into());
    Some(User { name, groups, uid: uid(subject)?, ..User::default() })
}

/// The uid that a subject names, empty if it names none. Kubernetes: two, or an empty one, make the certificate
/// worthless (request/x509/x509.go).
fn uid(subject: &X509Name) -> Option<Str> {
    let wanted = Oid::from(UID).ok()?;
    let mut found = subject.iter_by_oid(&wanted);
    match (found.next(), found.next()) {
        (None, _) => Some(Str::default()),
        (Some(uid), None) => uid.as_str().ok().filter(|uid| !uid.is_empty()).map(Into::into),
        (Some(_), Some(_)) => None,
    }
}
