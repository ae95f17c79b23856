//! Many objects at once, in each form that clients ask for.
//!
//! The first answer is read whole and its items are counted: a server that answers fast but wrong fails. After
//! that, bytes are only counted.

use std::io::Read;

use flate2::read::GzDecoder;
use hyper::body::Bytes;

use crate::client::{Call, CallError, JSON, PROTOBUF, TABLE};
use crate::load::{Load, Operation, Worker, WorkloadError, drive};
use crate::objects::{Collection, count_json, count_protobuf, group, n_in_group, scan_string};
use crate::report::Outcome;
use crate::session::Session;

/// What kubectl asks for at a time.
const PAGE: u64 = 500;
/// The group that the label selector selects.
const GROUP: u64 = 7;

/// A way to ask for a list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Form {
    /// Everything in one answer.
    Whole,
    /// Everything, one page after another; one operation is the whole walk.
    Pages,
    /// Everything, as old as the server likes.
    AnyVersion,
    /// One object in a hundred.
    Label,
    Gzip,
    Protobuf,
    /// One page of rows, then the next.
    TablePage,
}

impl Form {
    pub(super) const ALL: [Self; 7] = [
        Self::Whole,
        Self::Pages,
        Self::AnyVersion,
        Self::Label,
        Self::Gzip,
        Self::Protobuf,
        Self::TablePage,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Whole => "list",
            Self::Pages => "list-pages",
            Self::AnyVersion => "list-rv0",
            Self::Label => "list-label",
            Self::Gzip => "list-gzip",
            Self::Protobuf => "list-protobuf",
            Self::TablePage => "table-page",
        }
    }

    fn query(self) -> String {
        match self {
            Self::Whole | Self::Gzip | Self::Protobuf => String::new(),
            Self::Pages | Self::TablePage => format!("?limit={PAGE}"),
            Self::AnyVersion => "?resourceVersion=0".to_owned(),
            Self::Label => format!("?labelSelector=group%3D{}", group(GROUP)),
        }
    }

    fn call(self, collection: &Collection) -> Call {
        let accept = match self {
            Self::Protobuf => PROTOBUF,
            Self::TablePage => TABLE,
            _ => JSON,
        };
        Call::get(format!("{}{}", collection.path, self.query()))
            .accept(accept)
            .gzip(self == Self::Gzip)
    }

    /// How many items the first answer must have.
    fn n_items(self, n_objects: u64) -> u64 {
        match self {
            Self::Pages | Self::TablePage => n_objects.min(PAGE),
            Self::Label => n_in_group(n_objects, GROUP),
            _ => n_objects,
        }
    }

    fn count(self, body: &[u8]) -> Result<u64, String> {
        match self {
            Self::Protobuf => Ok(count_protobuf(body)),
            Self::Gzip => {
                let mut plain = Vec::new();
                GzDecoder::new(body)
                    .read_to_end(&mut plain)
                    .map_err(|error| format!("not gzip: {error}"))?;
                Ok(count_json(&plain))
            }
            _ => Ok(count_json(body)),
        }
    }
}

pub(super) async fn run(
    session: &Session,
    collection: &Collection,
    name: String,
    form: Form,
) -> Result<Outcome, WorkloadError> {
    verify(session, collection, form, session.options.objects).await?;
    let load = Load::new(session, name, session.options.list_clients);
    match form {
        Form::Pages => drive(session, load, Walk(collection.clone())).await,
        Form::TablePage => {
            drive(
                session,
                load,
                Page {
                    collection: collection.clone(),
                    form,
                },
            )
            .await
        }
        _ => drive(session, load, Whole(form.call(collection))).await,
    }
}

/// Single pages of a collection of `n_objects`.
pub(super) async fn pages(
    session: &Session,
    collection: &Collection,
    name: String,
    n_objects: u64,
) -> Result<Outcome, WorkloadError> {
    let form = Form::Pages;
    verify(session, collection, form, n_objects).await?;
    let load = Load::new(session, name, session.options.list_clients);
    drive(
        session,
        load,
        Page {
            collection: collection.clone(),
            form,
        },
    )
    .await
}

/// Checks one answer; that it also warms the server up is welcome.
async fn verify(
    session: &Session,
    collection: &Collection,
    form: Form,
    n_objects: u64,
) -> Result<(), WorkloadError> {
    let call = form.call(collection);
    let body: Bytes = session.call(&call).await?;
    let expected = form.n_items(n_objects);
    match form.count(&body) {
        Ok(n_items) if n_items == expected => Ok(()),
        Ok(n_items) => Err(call
            .unexpected(format!("{n_items} items instead of {expected}"))
            .into()),
        Err(complaint) => Err(call.unexpected(complaint).into()),
    }
}

/// The whole list in one answer.
struct Whole(Call);

impl Operation for Whole {
    async fn perform(&self, worker: &mut Worker, _turn: u64) -> Result<u64, CallError> {
        Ok(worker.connection.count(&self.0).await?.bytes)
    }
}

/// The next page; after the last the first.
struct Page {
    collection: Collection,
    form: Form,
}

impl Operation for Page {
    async fn perform(&self, worker: &mut Worker, _turn: u64) -> Result<u64, CallError> {
        next_page(worker, &self.collection, self.form).await
    }
}

/// Every page from the first to the last.
struct Walk(Collection);

impl Operation for Walk {
    async fn perform(&self, worker: &mut Worker, _turn: u64) -> Result<u64, CallError> {
        let mut bytes = 0;
        loop {
            bytes += next_page(worker, &self.0, Form::Pages).await?;
            if worker.cursor.is_empty() {
                return Ok(bytes);
            }
        }
    }
}

async fn next_page(
    worker: &mut Worker,
    collection: &Collection,
    form: Form,
) -> Result<u64, CallError> {
    let mut path = format!("{}{}", collection.path, form.query());
    if !worker.cursor.is_empty() {
        path = format!("{path}&continue={}", worker.cursor);
    }
    let accept = if form == Form::TablePage { TABLE } else { JSON };
    let counted = worker
        .connection
        .count(&Call::get(path).accept(accept))
        .await?;
    worker.cursor = scan_string(list_metadata(&counted.head), "continue")
        .unwrap_or_default()
        .to_owned();
    Ok(counted.bytes)
}

/// What comes before the items: only there does `continue` mean the next page.
fn list_metadata(head: &[u8]) -> &[u8] {
    let ends = |key: &[u8]| head.windows(key.len()).position(|window| window == key);
    let end = ends(b"\"items\":")
        .or_else(|| ends(b"\"columnDefinitions\":"))
        .unwrap_or(head.len());
    &head[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_named_before_the_items() {
        let page =
            br#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"9","continue":"abc"},"items":[{}]}"#;
        assert_eq!(scan_string(list_metadata(page), "continue"), Some("abc"));
        let last =
            br#"{"metadata":{"resourceVersion":"9"},"items":[{"data":{"continue":"not me"}}]}"#;
        assert_eq!(scan_string(list_metadata(last), "continue"), None);
    }

    #[test]
    fn each_form_knows_how_many_items_to_expect() {
        let expected = |form: Form| form.n_items(10_000);
        assert_eq!(expected(Form::Whole), 10_000);
        assert_eq!(expected(Form::TablePage), 500);
        assert_eq!(expected(Form::Label), 100);
    }
}
