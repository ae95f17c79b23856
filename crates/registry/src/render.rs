//! Stored objects in versions other than the one in which they are stored.
//!
//! An object is rendered in a version when it is first read in it, and the text is kept with its record, for as long as
//! the resource that it was rendered for is served.

use std::ops::Range;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use mizzen_store::Record;
use mizzen_value::Value;

use crate::decode::header;
use crate::header::Header;
use crate::resource::ResourceInner;
use crate::{Object, Resource, encode};

/// A stored object in one version.
pub(crate) struct Rendering {
    /// The resource that it was rendered for.
    of: Weak<ResourceInner>,
    pub(crate) text: Bytes,
    /// Where the digits of the version are in the text.
    pub(crate) digits: Range<usize>,
    /// What selects it, and its other forms.
    pub(crate) header: Header,
}

impl Resource {
    /// The cached rendering of a record.
    pub(crate) fn rendered(&self, record: &Arc<Record>, header: &Header) -> Option<Object> {
        let renderings = header.renderings.get()?.lock();
        let found = renderings
            .iter()
            .find(|rendering| std::ptr::eq(rendering.of.as_ptr(), Arc::as_ptr(self.inner())))?;
        Some(Object::rendered(found.clone(), record.clone()))
    }

    /// Caches `value`, the object of a record in this version.
    pub(crate) fn render(&self, record: Arc<Record>, value: &Value) -> Object {
        let (text, digits) = encode::located(value);
        let rendering = Arc::new(Rendering {
            of: Arc::downgrade(self.inner()),
            text: text.into(),
            digits,
            header: Header::new(self.kind(), value),
        });
        if let Ok(header) = header(self, &record) {
            let mut renderings = header.renderings.get_or_init(Default::default).lock();
            // A concurrent reader replaces it with the same text.
            renderings
                .retain(|known| known.of.strong_count() > 0 && !known.of.ptr_eq(&rendering.of));
            renderings.push(rendering.clone());
        }
        Object::rendered(rendering, record)
    }
}
