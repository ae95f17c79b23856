//! What went wrong, in the words of Go's HTTP client, which upstream shows to people.

use std::error::Error;
use std::io;

use tokio_rustls::rustls::{AlertDescription, CertificateError, Error as TlsError, InvalidMessage};

use crate::SendError;

/// Why a request got no answer.
pub(crate) fn says(error: &hyper_util::client::legacy::Error) -> String {
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
pub(crate) fn body(error: &(dyn Error + 'static)) -> String {
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
        return Some(handshake(error));
    }
    let error = cause.downcast_ref::<hyper::Error>()?;
    if error.is_parse() {
        return Some(format!(
            "net/http: HTTP/1.x transport connection broken: malformed HTTP response: {error}"
        ));
    }
    (error.is_incomplete_message() || error.is_canceled() || error.is_closed())
        .then(|| "EOF".into())
}

/// An error of the operating system: `connection refused`.
pub(crate) fn system(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters
        .next()
        .map(|first| first.to_ascii_lowercase())
        .into_iter()
        .chain(letters)
        .collect()
}

/// Why no secure connection came about, or why it ended: a server may reject a client's certificate after the handshake.
pub(crate) fn handshake(error: &io::Error) -> String {
    match error
        .get_ref()
        .and_then(|error| error.downcast_ref::<TlsError>())
    {
        Some(TlsError::InvalidCertificate(error)) => {
            let words = match error {
                CertificateError::Other(error) => error.0.to_string(),
                other => other.to_string(),
            };
            format!("tls: failed to verify certificate: x509: {words}")
        }
        Some(TlsError::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "http: server gave HTTP response to HTTPS client".into()
        }
        Some(TlsError::AlertReceived(alert)) => {
            format!("remote error: tls: {}", alert_text(*alert))
        }
        Some(error) => format!("tls: {error}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => "EOF".into(),
        None => format!("read tcp: read: {}", system(error)),
    }
}

/// An alert as Go names it (crypto/tls/alert.go).
fn alert_text(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::BadRecordMac => "bad record MAC".into(),
        AlertDescription::CertificateRevoked => "revoked certificate".into(),
        AlertDescription::CertificateExpired => "expired certificate".into(),
        AlertDescription::CertificateUnknown => "unknown certificate".into(),
        AlertDescription::UnknownCA => "unknown certificate authority".into(),
        AlertDescription::DecodeError => "error decoding message".into(),
        AlertDescription::DecryptError => "error decrypting message".into(),
        AlertDescription::ProtocolVersion => "protocol version not supported".into(),
        AlertDescription::InsufficientSecurity => "insufficient security level".into(),
        AlertDescription::UnrecognisedName => "unrecognized name".into(),
        AlertDescription::UnknownPSKIdentity => "unknown PSK identity".into(),
        AlertDescription::EncryptedClientHelloRequired => "encrypted client hello required".into(),
        other => spaced(&format!("{other:?}")),
    }
}

/// `HandshakeFailure` as `handshake failure`.
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
