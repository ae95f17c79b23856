//! An object as it is returned to a caller.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use mizzen_store::{Record, Revision};
use mizzen_value::{Value, json};

use crate::Resource;
use crate::decode;
use crate::header::{Forms, Header};
use crate::render::Rendering;

/// An object as JSON, in the requested version.
#[derive(Clone)]
pub struct Object {
    /// Its text.
    pub json: Bytes,
    record: Option<Arc<Record>>,
    /// The rendering, if the JSON is not that of the record.
    rendering: Option<Arc<Rendering>>,
}

impl Object {
    /// A record that is stored in the requested version. It was decoded before.
    pub(crate) fn stored(record: Arc<Record>) -> Object {
        Object {
            json: record.value.clone(),
            record: Some(record),
            rendering: None,
        }
    }

    /// A record in another version.
    pub(crate) fn rendered(rendering: Arc<Rendering>, record: Arc<Record>) -> Object {
        Object {
            json: rendering.text.clone(),
            record: Some(record),
            rendering: Some(rendering),
        }
    }

    /// An object that is not stored, from a dry run.
    pub fn unstored(json: Bytes) -> Object {
        Object {
            json,
            record: None,
            rendering: None,
        }
    }

    /// The decoded object.
    ///
    /// # Panics
    /// If an unstored object's text is no JSON. A stored one's was decoded before.
    pub fn value(&self) -> Value {
        json::parse(&self.json).expect("an object's text is JSON")
    }

    /// The cache of other representations. None for an object that is not stored.
    pub fn forms(&self, resource: &Resource) -> Option<&Forms> {
        self.header(resource).map(|header| &header.forms)
    }

    /// The header, in the version of the JSON. None for an object that is not stored.
    pub(crate) fn header(&self, resource: &Resource) -> Option<&Header> {
        match &self.rendering {
            Some(rendering) => Some(&rendering.header),
            None => decode::header(resource, self.record.as_deref()?).ok(),
        }
    }

    /// The record it came from.
    pub fn record(&self) -> Option<&Arc<Record>> {
        self.record.as_ref()
    }

    /// The same object with another resourceVersion.
    pub(crate) fn restamped(&self, revision: Revision) -> Object {
        let digits: Option<Range<usize>> = match &self.rendering {
            Some(rendering) => Some(rendering.digits.clone()),
            None => self.record.as_deref().and_then(Record::digits),
        };
        let digits = digits.expect("a stored object has a version");
        let (before, after) = (&self.json[..digits.start], &self.json[digits.end..]);
        let version = revision.to_string();
        Object::unstored([before, version.as_bytes(), after].concat().into())
    }
}
