//! An object on its way out.

use std::sync::Arc;

use bytes::Bytes;
use mizzen_object::{Value, json};
use mizzen_store::Record;

use crate::Resource;
use crate::header::{Forms, header};

/// An object as a caller gets it: text in the version that was asked for.
#[derive(Clone)]
pub struct Object {
    /// Its text.
    pub json: Bytes,
    record: Option<Arc<Record>>,
}

impl Object {
    /// A record as somebody sees it.
    pub(crate) fn of(json: Bytes, record: Arc<Record>) -> Object {
        Object {
            json,
            record: Some(record),
        }
    }

    /// An object that was never stored, as a dry run makes it.
    pub fn unstored(json: Bytes) -> Object {
        Object { json, record: None }
    }

    /// The object, read.
    pub fn value(&self) -> Value {
        json::parse(&self.json).unwrap_or_default()
    }

    /// Other forms of the object that were made before, and a place to keep new ones. None for what is not
    /// stored in the version that was asked for.
    pub fn forms(&self, resource: &Resource) -> Option<&Forms> {
        let record = self
            .record
            .as_deref()
            .filter(|record| resource.is_current(record))?;
        Some(&header(resource, record).forms)
    }

    /// The record it came from.
    pub fn record(&self) -> Option<&Arc<Record>> {
        self.record.as_ref()
    }
}
