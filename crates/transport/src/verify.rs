//! Is a server's certificate good? As Go's `crypto/x509` decides it, which upstream relies on.
//!
//! Its dates and its name come first. Then it is trusted if it is itself in the bundle, or if a chain leads from it to a
//! certificate of the bundle that may sign: one of an intermediate authority will do ([`ChainBuilder`]). Last comes what
//! the certificates of a chain say they are for, and for which names its authorities may sign ([`constraints`]). webpki
//! rejects a leaf that is also an authority, as `openssl req -x509` makes them, and does not say which certificate
//! nearly fitted, so that chains are built here.
//!
//! Invariant: dates, names and purposes are checked whatever makes a certificate trusted.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use mizzen_value::{json, time};
use tokio_rustls::rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{self, CertificateError, OtherError};
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate};

use crate::check_signatures;
use crate::constraints;
use crate::signed::check_signature_from;

/// Go: how many signatures are checked for one leaf at most.
const MAX_SIGNATURES: usize = 100;
/// Go: how many names of a certificate an error lists.
const MAX_SHOWN_NAMES: usize = 100;

/// Why a certificate is not trusted, in the words of Go's `crypto/x509`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Untrusted(String);

impl From<Untrusted> for rustls::Error {
    fn from(untrusted: Untrusted) -> rustls::Error {
        CertificateError::Other(OtherError(Arc::new(untrusted))).into()
    }
}

/// The certificates of a bundle.
pub(crate) struct RootCertificates(Vec<RootCertificate>);

struct RootCertificate {
    der: CertificateDer<'static>,
    /// The name under which it signs, as it is encoded.
    subject: Vec<u8>,
}

impl RootCertificates {
    pub(crate) fn new(
        certificates: impl IntoIterator<Item = CertificateDer<'static>>,
    ) -> RootCertificates {
        let roots = certificates.into_iter().filter_map(|der| {
            let (_, parsed) = X509Certificate::from_der(&der).ok()?;
            let subject = parsed.subject().as_raw().to_vec();
            Some(RootCertificate { der, subject })
        });
        RootCertificates(roots.collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a server with these certificates may be believed to be `name` at the second `now`.
    fn check(
        &self,
        leaf: &CertificateDer,
        intermediates: &[CertificateDer],
        name: &ServerName,
        now: i64,
    ) -> Result<(), Untrusted> {
        let (_, parsed) = X509Certificate::from_der(leaf)
            .map_err(|error| Untrusted(format!("malformed certificate: {error}")))?;
        check_extensions(&parsed)?;
        check_dates(&parsed, now)?;
        check_name(&parsed, name)?;
        let chain = vec![parsed];
        if self.0.iter().any(|root| root.der == *leaf) {
            return check_chains(&[chain]);
        }
        let intermediates = intermediates
            .iter()
            .filter_map(|der| Some(X509Certificate::from_der(der).ok()?.1))
            .collect();
        let mut builder = ChainBuilder {
            roots: self,
            intermediates,
            now,
            n_signatures: 0,
        };
        check_chains(&builder.chains_from(&chain)?)
    }
}

type Chain<'a> = Vec<X509Certificate<'a>>;

/// Finds the ways from a leaf to a root. Go: `buildChains`.
struct ChainBuilder<'a> {
    roots: &'a RootCertificates,
    intermediates: Chain<'a>,
    now: i64,
    n_signatures: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CertificateRole {
    Intermediate,
    Root,
}

impl<'a> ChainBuilder<'a> {
    /// All chains that begin with `chain`. The error is about the last certificate that had signed and was not valid, or
    /// names the first that might have signed.
    fn chains_from(&mut self, chain: &[X509Certificate<'a>]) -> Result<Vec<Chain<'a>>, Untrusted> {
        let child = chain.last().expect("a chain begins with a leaf");
        let (mut chains, mut problem, mut hint) = (Vec::new(), None, None);
        for (role, parent) in self.potential_parents(child) {
            self.n_signatures += 1;
            if self.n_signatures > MAX_SIGNATURES {
                problem = Some(Untrusted(
                    "signature check attempts limit reached while verifying certificate chain"
                        .into(),
                ));
                break;
            }
            if is_in_chain(&parent, chain) {
                continue;
            }
            if let Err(why) = check_signature_from(child, &parent) {
                hint.get_or_insert_with(|| candidate_hint(&why, &parent));
                continue;
            }
            problem = self.check_parent(role, &parent, chain).err();
            if let Some(problem) = &problem {
                hint.get_or_insert_with(|| candidate_hint(&format!("x509: {problem}"), &parent));
                continue;
            }
            let longer = [chain, &[parent]].concat();
            match role {
                CertificateRole::Root => chains.push(longer),
                CertificateRole::Intermediate => match self.chains_from(&longer) {
                    Ok(found) => chains.extend(found),
                    Err(error) => problem = Some(error),
                },
            }
        }
        if !chains.is_empty() {
            return Ok(chains);
        }
        let unknown = || {
            let hint = hint.unwrap_or_default();
            Untrusted(format!("certificate signed by unknown authority{hint}"))
        };
        Err(problem.unwrap_or_else(unknown))
    }

    /// Certificates with the name of the issuer, roots first; those with a matching key identifier come first.
    fn potential_parents(
        &self,
        child: &X509Certificate,
    ) -> Vec<(CertificateRole, X509Certificate<'a>)> {
        let issuer = child.issuer().as_raw();
        let roots = self.roots.0.iter().filter(|root| root.subject == issuer);
        let roots = roots.filter_map(|root| Some(X509Certificate::from_der(&root.der).ok()?.1));
        let intermediates = self.intermediates.iter();
        let intermediates = intermediates.filter(|parent| parent.subject().as_raw() == issuer);
        let mut parents: Vec<(CertificateRole, X509Certificate<'a>)> = roots
            .map(|root| (CertificateRole::Root, root))
            .chain(intermediates.map(|parent| (CertificateRole::Intermediate, parent.clone())))
            .collect();
        let authority_key = authority_key_id(child);
        parents.sort_by_key(|(role, parent)| {
            let rank = match (subject_key_id(parent), authority_key) {
                (subject, authority) if subject == authority => 0,
                (None, _) | (_, None) => 1,
                _ => 2,
            };
            (*role == CertificateRole::Intermediate, rank)
        });
        parents
    }

    /// Whether a certificate that has signed the last one of a chain may stand there. Go: `isValid`.
    fn check_parent(
        &self,
        role: CertificateRole,
        parent: &X509Certificate,
        chain: &[X509Certificate],
    ) -> Result<(), Untrusted> {
        check_extensions(parent)?;
        check_dates(parent, self.now)?;
        let basic = parent.basic_constraints().ok().flatten();
        if role == CertificateRole::Intermediate
            && !basic.as_ref().is_some_and(|basic| basic.value.ca)
        {
            return Err(Untrusted(
                "certificate is not authorized to sign other certificates".into(),
            ));
        }
        let max_path_len = basic.and_then(|basic| basic.value.path_len_constraint);
        let max_path_len = max_path_len.and_then(|max| usize::try_from(max).ok());
        if max_path_len.is_some_and(|max| chain.len() - 1 > max) {
            return Err(Untrusted(
                "too many intermediates for path length constraint".into(),
            ));
        }
        Ok(())
    }
}

/// Whether one of the chains is for servers, and for the names of its certificates.
fn check_chains(chains: &[Chain]) -> Result<(), Untrusted> {
    let (mut is_for_others, mut constraint) = (false, None);
    for chain in chains {
        if !chain.iter().all(is_for_servers) {
            is_for_others = true;
        } else if let Err(detail) = constraints::check(chain) {
            constraint.get_or_insert(detail);
        } else {
            return Ok(());
        }
    }
    Err(Untrusted(match constraint {
        Some(detail) => format!(
            "a root or intermediate certificate is not authorized to sign for this name: {detail}"
        ),
        None if is_for_others => "certificate specifies an incompatible key usage".into(),
        None => "no valid chains built".into(),
    }))
}

/// A certificate that says what it is for must say that it is for servers, or for anything.
fn is_for_servers(certificate: &X509Certificate) -> bool {
    match certificate.extended_key_usage() {
        Ok(None) => true,
        Ok(Some(usage)) => usage.value.server_auth || usage.value.any,
        Err(_) => false,
    }
}

/// Which certificate nearly fitted, and why it did not.
fn candidate_hint(why: &str, candidate: &X509Certificate) -> String {
    let subject = candidate.subject();
    let first = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
    let common = subject.iter_common_name().next();
    let organization = subject.iter_organization().next();
    let name = first(common.and_then(|name| name.as_str().ok()))
        .or_else(|| first(organization.and_then(|name| name.as_str().ok())))
        .unwrap_or_else(|| format!("serial:{}", candidate.tbs_certificate.serial));
    format!(
        " (possibly because of {} while trying to verify candidate authority certificate {})",
        json::quote(why),
        json::quote(&name)
    )
}

/// Whether a chain has a certificate of the same subject, key and names.
fn is_in_chain(candidate: &X509Certificate, chain: &[X509Certificate]) -> bool {
    let alternative = |certificate: &X509Certificate| {
        let mut extensions = certificate.extensions().iter();
        let found = extensions.find(|extension| extension.oid.to_id_string() == "2.5.29.17");
        found.map(|extension| extension.value.to_vec())
    };
    chain.iter().any(|certificate| {
        certificate.subject().as_raw() == candidate.subject().as_raw()
            && certificate.public_key().raw == candidate.public_key().raw
            && alternative(certificate) == alternative(candidate)
    })
}

fn authority_key_id<'a>(certificate: &'a X509Certificate) -> Option<&'a [u8]> {
    certificate
        .extensions()
        .iter()
        .find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                id.key_identifier.as_ref().map(|id| id.0)
            }
            _ => None,
        })
}

fn subject_key_id<'a>(certificate: &'a X509Certificate) -> Option<&'a [u8]> {
    certificate
        .extensions()
        .iter()
        .find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
            _ => None,
        })
}

/// Critical extensions must be ones that Go knows (crypto/x509/parser.go).
fn check_extensions(certificate: &X509Certificate) -> Result<(), Untrusted> {
    const KNOWN: [&str; 13] = [
        "2.5.29.14",
        "2.5.29.15",
        "2.5.29.17",
        "2.5.29.19",
        "2.5.29.30",
        "2.5.29.31",
        "2.5.29.32",
        "2.5.29.33",
        "2.5.29.35",
        "2.5.29.36",
        "2.5.29.37",
        "2.5.29.54",
        "1.3.6.1.5.5.7.1.1",
    ];
    let mut critical = certificate
        .extensions()
        .iter()
        .filter(|extension| extension.critical);
    if critical.any(|extension| !KNOWN.contains(&extension.oid.to_id_string().as_str())) {
        return Err(Untrusted("unhandled critical extension".into()));
    }
    Ok(())
}

fn check_dates(certificate: &X509Certificate, now: i64) -> Result<(), Untrusted> {
    let validity = certificate.validity();
    let (from, until) = (
        validity.not_before.timestamp(),
        validity.not_after.timestamp(),
    );
    let (relation, limit) = if now < from {
        ("before", from)
    } else if now > until {
        ("after", until)
    } else {
        return Ok(());
    };
    let (now, limit) = (time::from_unix(now), time::from_unix(limit));
    Err(Untrusted(format!(
        "certificate has expired or is not yet valid: current time {now} is {relation} {limit}"
    )))
}

/// Whether the certificate has the name. Go: a common name is none.
fn check_name(certificate: &X509Certificate, name: &ServerName) -> Result<(), Untrusted> {
    let wanted = name.to_str();
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let names = alternative
        .as_ref()
        .map(|names| names.value.general_names.as_slice())
        .unwrap_or_default();
    let is_address = matches!(name, ServerName::IpAddress(_));
    let shown: Vec<String> = names
        .iter()
        .filter_map(|name| shown_name(name, is_address))
        .collect();
    let fits = |own: &String| match is_address {
        true => own.parse::<IpAddr>().ok() == wanted.parse::<IpAddr>().ok(),
        false => matches_host(own, &wanted),
    };
    if shown.iter().any(fits) {
        return Ok(());
    }
    let common = certificate.subject().iter_common_name().next();
    let common = common.and_then(|name| name.as_str().ok());
    let n_names = shown.len();
    Err(Untrusted(
        if alternative.is_none() && common.is_some_and(|common| matches_host(common, &wanted)) {
            "certificate relies on legacy Common Name field, use SANs instead".into()
        } else if n_names == 0 && is_address {
            format!(
                "cannot validate certificate for {wanted} because it doesn't contain any IP SANs"
            )
        } else if n_names == 0 {
            format!("certificate is not valid for any names, but wanted to match {wanted}")
        } else if n_names >= MAX_SHOWN_NAMES {
            let what = if is_address { "IP SANs" } else { "names" };
            format!("certificate is valid for {n_names} {what}, but none matched {wanted}")
        } else {
            let names = shown.join(", ");
            format!("certificate is valid for {names}, not {wanted}")
        },
    ))
}

/// Whether a name of a certificate, perhaps with `*` as its first label, is that of a host.
fn matches_host(pattern: &str, host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    match (pattern.strip_prefix("*."), host.split_once('.')) {
        (Some(rest), Some((_, wanted))) => rest.eq_ignore_ascii_case(wanted),
        (Some(_), None) => false,
        (None, _) => !pattern.is_empty() && pattern.eq_ignore_ascii_case(host),
    }
}

fn shown_name(name: &GeneralName, is_address: bool) -> Option<String> {
    match name {
        GeneralName::DNSName(name) if !is_address => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) if is_address => {
            constraints::address(bytes).map(|address| address.to_string())
        }
        _ => None,
    }
}

/// Verifies servers by the roots of a target.
pub(crate) struct ServerVerifier {
    pub roots: Arc<RootCertificates>,
    pub provider: Arc<CryptoProvider>,
}

impl fmt::Debug for ServerVerifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Verifier({})", self.roots.0.len())
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        self.roots
            .check(end_entity, intermediates, server_name, now)?;
        Ok(ServerCertVerified::assertion())
    }

    check_signatures! { provider }
}
