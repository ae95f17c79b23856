//! What went wrong, in the words of Go's HTTP client, which upstream shows to people.

use std::error::Error;
use std::io;

use tokio_rustls::rustls::{CertificateError, InvalidMessage};
use tokio_rustls::rustls::{Error as TlsError, pki_types::ServerName};

use super::SendError;

/// Why a request got no answer.
pub(super) fn says(error: &hyper_util::client::legacy::Error) -> String {
    let mut cause: &(dyn Error + 'static) = error;
    loop {
        if let Some(words) = of_one(cause) {
            return words;
        }
        match cause.source() {
            Some(deeper) => cause = deeper,
            None => return cause.to_string(),
        }
    }
}

/// Why an answer's body ended too early.
pub(super) fn body(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    loop {
        if let Some(error) = cause.downcast_ref::<hyper::Error>()
            && (error.is_incomplete_message() || error.is_body_write_aborted())
        {
            return "unexpected EOF".into();
        }
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            return match error.kind() {
                io::ErrorKind::UnexpectedEof => "unexpected EOF".into(),
                _ => format!("read tcp: read: {}", system(error)),
            };
        }
        match cause.source() {
            Some(deeper) => cause = deeper,
            None => return cause.to_string(),
        }
    }
}

fn of_one(cause: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = cause.downcast_ref::<SendError>() {
        return Some(error.0.clone());
    }
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        return Some(match error.kind() {
            io::ErrorKind::UnexpectedEof => "EOF".into(),
            _ => format!("read tcp: read: {}", system(error)),
        });
    }
    let error = cause.downcast_ref::<hyper::Error>()?;
    if error.is_parse() {
        return Some(format!(
            "net/http: HTTP/1.x transport connection broken: malformed HTTP response: {error}"
        ));
    }
    (error.is_incomplete_message() || error.is_canceled() || error.is_closed()).then(|| "EOF".into())
}

/// An error of the operating system: `connection refused`.
pub(super) fn system(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect()
}

/// Why no secure connection came about.
pub(super) fn handshake(error: &io::Error) -> String {
    match error.get_ref().and_then(|error| error.downcast_ref::<TlsError>()) {
        Some(TlsError::InvalidCertificate(error)) => {
            format!("tls: failed to verify certificate: x509: {}", certificate(error))
        }
        Some(TlsError::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "http: server gave HTTP response to HTTPS client".into()
        }
        Some(TlsError::AlertReceived(alert)) => {
            format!("remote error: tls: {}", spaced(&format!("{alert:?}")))
        }
        Some(error) => format!("tls: {error}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => "EOF".into(),
        None => format!("read tcp: read: {}", system(error)),
    }
}

fn certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => "certificate signed by unknown authority".into(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("certificate has expired or is not yet valid{}", times(error))
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("certificate has expired or is not yet valid{}", times(error))
        }
        CertificateError::NotValidForNameContext { expected, presented } => other_name(expected, presented),
        CertificateError::BadSignature => "certificate signed by unknown authority".into(),
        // A certificate that is its own authority is nobody's server.
        CertificateError::Other(_) => "certificate signed by unknown authority".into(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "certificate specifies an incompatible key usage".into()
        }
        other => other.to_string(),
    }
}

fn times(error: &CertificateError) -> String {
    let show = |time: &tokio_rustls::rustls::pki_types::UnixTime| {
        mizzen_object::time::from_unix(i64::try_from(time.as_secs()).unwrap_or_default())
    };
    match error {
        CertificateError::ExpiredContext { time, not_after } => {
            format!(": current time {} is after {}", show(time), show(not_after))
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            format!(": current time {} is before {}", show(time), show(not_before))
        }
        _ => String::new(),
    }
}

/// The names that a certificate has, where another was wanted.
fn other_name(expected: &ServerName<'_>, presented: &[String]) -> String {
    let names = |kind: &str| -> Vec<&str> {
        let names = presented.iter().filter_map(|name| name.strip_prefix(kind));
        names.map(|name| name.trim_matches(['(', ')', '"'])).collect()
    };
    let wanted = expected.to_str();
    let (dns, addresses) = (names("DnsName"), names("IpAddress"));
    match expected {
        ServerName::IpAddress(_) if addresses.is_empty() => {
            format!("cannot validate certificate for {wanted} because it doesn't contain any IP SANs")
        }
        ServerName::IpAddress(_) => {
            format!("certificate is valid for {}, not {wanted}", addresses.join(", "))
        }
        _ if dns.is_empty() => {
            format!("certificate is not valid for any names, but wanted to match {wanted}")
        }
        _ => format!("certificate is valid for {}, not {wanted}", dns.join(", ")),
    }
}

/// `UnknownCA` as `unknown ca`.
fn spaced(word: &str) -> String {
    let mut text = String::new();
    let mut before = ' ';
    for letter in word.chars() {
        if letter.is_ascii_uppercase() && before.is_ascii_lowercase() {
            text.push(' ');
        }
        text.push(letter.to_ascii_lowercase());
        before = letter;
    }
    text
}
