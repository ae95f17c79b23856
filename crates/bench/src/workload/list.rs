//! Lists in each form that clients request.
//!
//! The items of the first response are counted, so that a wrong response fails the workload. After that only bytes are
//! counted.

use std::io::Read;

use flate2::read::GzDecoder;
use hyper::body::Bytes;

use crate::client::{ApiCall, ApiCallError, JSON, PROTOBUF, TABLE};
use crate::load::{BenchOperation, LoadClient, LoadSpec, WorkloadError, drive};
use crate::objects::{Collection, count_json, count_protobuf, group, n_in_group, scan_string};
use crate::report::WorkloadOutcome;
use crate::session::Session;

/// The page size of kubectl.
const PAGE: u64 = 500;
/// The group that the label selector selects.
const GROUP: u64 = 7;

/// A form of a list request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ListForm {
    /// All objects in one response.
    Whole,
    /// All objects in pages; one operation is all pages.
    Pages,
    /// All objects at any resourceVersion (0).
    AnyVersion,
    /// One object in a hundred.
    Label,
    Gzip,
    Protobuf,
    /// One page of a Table per operation.
    TablePage,
}

impl ListForm {
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

    fn call(self, collection: &Collection) -> ApiCall {
        let accept = match self {
            Self::Protobuf => PROTOBUF,
            Self::TablePage => TABLE,
            _ => JSON,
        };
        ApiCall::get(format!("{}{}", collection.path, self.query()))
            .accept(accept)
            .gzip(self == Self::Gzip)
    }

    /// The number of items in the first response.
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
    form: ListForm,
) -> Result<WorkloadOutcome, WorkloadError> {
    verify(session, collection, form, session.options.objects).await?;
    let load = LoadSpec::new(session, name, session.options.list_clients);
    match form {
        ListForm::Pages => drive(session, load, ListAllPages(collection.clone())).await,
        ListForm::TablePage => {
            drive(
                session,
                load,
                ListPage {
                    collection: collection.clone(),
                    form,
                },
            )
            .await
        }
        _ => drive(session, load, ListWhole(form.call(collection))).await,
    }
}

/// Single pages of a collection of `n_objects`.
pub(super) async fn pages(
    session: &Session,
    collection: &Collection,
    name: String,
    n_objects: u64,
) -> Result<WorkloadOutcome, WorkloadError> {
    let form = ListForm::Pages;
    verify(session, collection, form, n_objects).await?;
    let load = LoadSpec::new(session, name, session.options.list_clients);
    drive(
        session,
        load,
        ListPage {
            collection: collection.clone(),
            form,
        },
    )
    .await
}

/// Checks the number of items in one response, which also warms up the server.
async fn verify(
    session: &Session,
    collection: &Collection,
    form: ListForm,
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
        Err(problem) => Err(call.unexpected(problem).into()),
    }
}

/// Lists all objects in one response.
struct ListWhole(ApiCall);

impl BenchOperation for ListWhole {
    async fn perform(&self, client: &mut LoadClient, _turn: u64) -> Result<u64, ApiCallError> {
        Ok(client.connection.count(&self.0).await?.bytes)
    }
}

/// Lists the next page; after the last one the first.
struct ListPage {
    collection: Collection,
    form: ListForm,
}

impl BenchOperation for ListPage {
    async fn perform(&self, client: &mut LoadClient, _turn: u64) -> Result<u64, ApiCallError> {
        next_page(client, &self.collection, self.form).await
    }
}

/// Lists all pages.
struct ListAllPages(Collection);

impl BenchOperation for ListAllPages {
    async fn perform(&self, client: &mut LoadClient, _turn: u64) -> Result<u64, ApiCallError> {
        let mut bytes = 0;
        loop {
            bytes += next_page(client, &self.0, ListForm::Pages).await?;
            if client.cursor.is_empty() {
                return Ok(bytes);
            }
        }
    }
}

async fn next_page(
    client: &mut LoadClient,
    collection: &Collection,
    form: ListForm,
) -> Result<u64, ApiCallError> {
    let mut path = format!("{}{}", collection.path, form.query());
    if !client.cursor.is_empty() {
        path = format!("{path}&continue={}", client.cursor);
    }
    let accept = if form == ListForm::TablePage {
        TABLE
    } else {
        JSON
    };
    let counted = client
        .connection
        .count(&ApiCall::get(path).accept(accept))
        .await?;
    client.cursor = scan_string(list_metadata(&counted.head), "continue")
        .unwrap_or_default()
        .to_owned();
    Ok(counted.bytes)
}

/// The part before the items, where `continue` is the token of the next page.
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
    fn the_continue_token_is_read_before_the_items() {
        let page =
            br#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"9","continue":"abc"},"items":[{}]}"#;
        assert_eq!(scan_string(list_metadata(page), "continue"), Some("abc"));
        let last =
            br#"{"metadata":{"resourceVersion":"9"},"items":[{"data":{"continue":"not me"}}]}"#;
        assert_eq!(scan_string(list_metadata(last), "continue"), None);
    }

    #[test]
    fn each_form_expects_a_number_of_items() {
        let expected = |form: ListForm| form.n_items(10_000);
        assert_eq!(expected(ListForm::Whole), 10_000);
        assert_eq!(expected(ListForm::TablePage), 500);
        assert_eq!(expected(ListForm::Label), 100);
    }
}
