//! Stored records, decoded.
//!
//! A record is decoded the first time that it is read, unless this process wrote it. What is found is attached to it.
//!
//! Invariant: a record that cannot be decoded is an error for every reader. It is logged once, with its key, and each
//! failed read is counted.

use mizzen_object::Status;
use mizzen_store::Record;
use mizzen_value::{Value, json};
use tracing::error;

use crate::Resource;
use crate::header::Header;

/// What is attached to a record: its header, or why it cannot be decoded.
pub(crate) type Attached = Result<Header, Box<Status>>;

/// The header of a record, decoded the first time if the writer did not leave it.
pub(crate) fn header<'a>(resource: &Resource, record: &'a Record) -> Result<&'a Header, Status> {
    let attached: &Attached = record.attach(|record| match parse(&record.value) {
        Ok(value) => Ok(Header::new(resource.stored(), &value)),
        Err(problem) => {
            let (space, key, revision) = (resource.space().name(), &record.key, record.revision.0);
            error!(resource = %space, %key, revision, error = problem, "stored object cannot be decoded");
            // Kubernetes: the decoder's error has no reason (storage/etcd3/store.go, recordDecodeError).
            Err(Box::new(Status::unknown(problem)))
        }
    });
    attached.as_ref().map_err(|error| {
        resource.space().count_decode_error();
        (**error).clone()
    })
}

/// The object of a record, in the version in which it is stored.
pub(crate) fn decode(resource: &Resource, record: &Record) -> Result<Value, Status> {
    header(resource, record)?;
    Ok(parse(&record.value).expect("what has a header can be decoded"))
}

/// The same without members that are not needed.
pub(crate) fn decode_outline(
    resource: &Resource,
    record: &Record,
    uninteresting: &[&str],
) -> Result<Value, Status> {
    header(resource, record)?;
    Ok(json::outline(&record.value, uninteresting).expect("what has a header can be decoded"))
}

/// Parses the text of a stored object.
pub(crate) fn parse(text: &[u8]) -> Result<Value, String> {
    let value = json::parse(text).map_err(|error| error.to_string())?;
    match value["kind"].is_empty() {
        true => Err(missing_kind(text)),
        false => Ok(value),
    }
}

/// The error for an object that states no kind.
pub(crate) fn missing_kind(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    format!("Object 'Kind' is missing in '{text}'")
}
