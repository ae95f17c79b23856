//! Lists objects: all, those that match selectors, or page by page.
//!
//! Every page of a list shows the state at the revision of the first page. The snapshot is kept until that revision is
//! compacted, or the store needs its memory; then the client gets 410 with a token that goes on in the present.

use std::sync::Arc;

use mizzen_object::select::{FieldSelector, LabelSelector};
use mizzen_object::{Kind, Status};
use mizzen_store::{ReadError, Record, Revision, Snapshot};
use mizzen_value::Str;

use crate::fresh::{Freshness, too_large};
use crate::get::converter_required;
use crate::header::{matches, matches_object, required_term};
use crate::status::read_status;
use crate::token::ContinueToken;
use crate::{Key, Match, Object, Registry, Resource, parse_version};

/// How many records are read, and converted, at once.
const READ_AT_ONCE: usize = 500;

/// The selection of a list or watch.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// The namespace, `""` for all.
    pub namespace: Str,
    /// The label selector.
    pub labels: LabelSelector,
    /// The field selector.
    pub fields: FieldSelector,
}

impl Selection {
    /// The one object that can be selected, if its whole key is given: across all namespaces a name is not enough.
    pub(crate) fn only(&self, kind: &Kind) -> Option<Key> {
        let name = self.fields.exact("metadata.name")?;
        let namespace = match self.namespace.as_str() {
            "" if kind.is_namespaced() => self.fields.exact("metadata.namespace")?,
            namespace => namespace,
        };
        Some(Key::new(namespace, name))
    }

    /// What the keys of all objects that can be selected begin with.
    pub(crate) fn prefix(&self, kind: &Kind) -> String {
        match self.only(kind) {
            Some(key) => key.stored().as_ref().into(),
            None => Key::prefix(&self.namespace),
        }
    }

    /// An index term of every object that can be selected, if the selectors demand one.
    pub(crate) fn index_term(&self, resource: &Resource) -> Option<Arc<str>> {
        let (kind, labels) = (resource.stored(), &self.labels);
        match resource.is_custom() {
            // Labels are equal in all versions if no webhook converts them; fields are not.
            true => required_term(kind, labels, &FieldSelector::default())
                .filter(|_| resource.converts_locally()),
            false => required_term(kind, labels, &self.fields),
        }
    }

    fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}

/// The options of a list.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    /// The selection of objects.
    pub selection: Selection,
    /// The resourceVersion; empty for the latest.
    pub version: String,
    /// resourceVersionMatch.
    pub matching: Match,
    /// The limit; 0 for none.
    pub limit: usize,
    /// The continue token.
    pub token: String,
}

impl ListOptions {
    /// Whether a version is specified that a continue token excludes.
    fn has_version(&self) -> bool {
        !self.version.is_empty() && self.version != "0"
    }

    /// How recent the list must be. Invalid options are rejected later.
    fn freshness(&self) -> Freshness {
        if self.token.is_empty() {
            return Freshness::of(&self.version);
        }
        match ContinueToken::decode(&self.token).map(|token| u64::try_from(token.version)) {
            Ok(Ok(revision)) => Freshness::AtLeast(revision),
            // It continues in the present.
            Ok(Err(_)) => Freshness::Latest,
            Err(_) => Freshness::Any,
        }
    }

    /// The revision at which the list is read, if it is a certain one.
    fn exact_revision(&self) -> Option<u64> {
        if !self.token.is_empty() {
            let token = ContinueToken::decode(&self.token).ok()?;
            return token.version.try_into().ok();
        }
        let wanted = parse_version(&self.version).ok()?;
        match self.matching {
            Match::Exact => Some(wanted),
            // Kubernetes: with a limit, a version without a match is exact.
            Match::Unset if self.limit > 0 && wanted > 0 => Some(wanted),
            Match::Unset | Match::NotOlderThan => None,
        }
    }
}

/// A page of a list.
pub struct ObjectList {
    /// The objects, in the order of their keys.
    pub items: Vec<Object>,
    /// The revision of the list.
    pub version: Revision,
    /// The token for the next page; empty on the last.
    pub token: String,
    /// remainingItemCount, if known.
    pub remaining: Option<usize>,
    /// How many bytes the space had given up by then, as [`Keyspace::superseded`](mizzen_store::Keyspace::superseded) counts
    /// them. None if the objects are not the store's.
    pub superseded: Option<u64>,
}

impl Registry {
    /// Lists objects.
    pub async fn read_list(
        &self,
        resource: &Resource,
        options: &ListOptions,
    ) -> Result<ObjectList, Status> {
        // Kubernetes: options that a continue token excludes are rejected first.
        let freshness = match options.token.is_empty() || !options.has_version() {
            true => options.freshness(),
            false => Freshness::Any,
        };
        let prefix = options.selection.prefix(resource.kind());
        let exact = options.exact_revision().map(Revision);
        // A page after the first needs nothing but what was kept for it.
        let kept = exact.and_then(|revision| resource.space().retained(revision, &prefix));
        let (latest, exact) = match kept {
            Some(kept) => (kept.clone(), Some(kept)),
            None => {
                let latest = self.snapshot(resource, &prefix, freshness).await?;
                let exact = exact.filter(|revision| *revision <= latest.at());
                let exact = self.snapshot_of_the_past(resource, &prefix, exact).await?;
                (latest, exact)
            }
        };
        let start = start(options, resource, latest, exact)?;
        let (limit, after) = start.bounds(options);
        let found = select_any(
            resource,
            &start.snapshot,
            &options.selection,
            after.as_deref(),
            limit,
        )
        .await?;
        Ok(self.finish(resource, options, &start, found))
    }

    /// The same for a built-in kind, whose conversion is synchronous.
    pub fn list(&self, resource: &Resource, options: &ListOptions) -> Result<ObjectList, Status> {
        let space = resource.space();
        let exact = options.exact_revision().map(Revision);
        let exact = exact.and_then(|revision| space.snapshot_at(revision).ok());
        let start = start(options, resource, space.snapshot(), exact)?;
        let (limit, after) = start.bounds(options);
        let found = select(
            resource,
            &start.snapshot,
            &options.selection,
            after.as_deref(),
            limit,
        )?;
        Ok(self.finish(resource, options, &start, found))
    }

    /// The state at `revision`; none if that was compacted.
    async fn snapshot_of_the_past(
        &self,
        resource: &Resource,
        prefix: &str,
        revision: Option<Revision>,
    ) -> Result<Option<Snapshot>, Status> {
        let Some(revision) = revision else {
            return Ok(None);
        };
        let read = self
            .store
            .snapshot_below(resource.space(), prefix, revision);
        match read.await {
            Err(ReadError::Expired(_)) => Ok(None),
            read => read.map(Some).map_err(read_status),
        }
    }

    fn finish(
        &self,
        resource: &Resource,
        options: &ListOptions,
        start: &Start,
        found: Found,
    ) -> ObjectList {
        let (items, more) = found;
        let superseded = Some(start.snapshot.superseded());
        let mut list = ObjectList {
            items,
            version: start.version,
            token: String::new(),
            remaining: None,
            superseded,
        };
        if more {
            let prefix = Key::prefix(&options.selection.namespace);
            list.set_continuation(resource, options, start, &prefix);
        }
        list
    }
}

/// The start of a list: in `latest`, or, if it is read at a certain revision, in `exact`, unless that was compacted.
fn start(
    options: &ListOptions,
    resource: &Resource,
    latest: Snapshot,
    exact: Option<Snapshot>,
) -> Result<Start, Status> {
    if !options.token.is_empty() {
        return resume(options, latest, exact);
    }
    let wanted = parse_version(&options.version).map_err(|error| {
        Status::bad_request(format!("invalid resource version: {}", error.named()))
    })?;
    if wanted > latest.at().0 {
        return Err(too_large(wanted, latest.at()));
    }
    if options.exact_revision().is_some() {
        let snapshot = exact.ok_or_else(|| {
            Status::expired("The resourceVersion for the provided list is too old.")
        })?;
        return Ok(Start::new(snapshot, Revision(wanted)));
    }
    let unlimited = options.version == "0" && resource.is_cached();
    let version = latest.at();
    Ok(Start {
        unlimited,
        ..Start::new(latest, version)
    })
}

/// The start of the next page.
fn resume(
    options: &ListOptions,
    latest: Snapshot,
    exact: Option<Snapshot>,
) -> Result<Start, Status> {
    let token = ContinueToken::decode(&options.token)
        .map_err(|problem| Status::bad_request(format!("invalid continue token: {problem}")))?;
    if options.has_version() {
        return Err(Status::bad_request(
            "specifying resource version is not allowed when using continue",
        ));
    }
    let (snapshot, version) = match u64::try_from(token.version).map(Revision) {
        Ok(version) if version > latest.at() => return Err(too_large(version.0, latest.at())),
        Ok(version) => (exact.ok_or_else(|| expired_token(&token))?, version),
        Err(_) => {
            let version = latest.at();
            (latest, version)
        }
    };
    Ok(Start {
        after: Some(token.after()),
        left: token.left,
        ..Start::new(snapshot, version)
    })
}

impl ObjectList {
    /// Sets the continue token and the number of remaining items.
    fn set_continuation(
        &mut self,
        resource: &Resource,
        options: &ListOptions,
        start: &Start,
        prefix: &str,
    ) {
        resource.space().retain(&start.snapshot);
        if options.selection.is_everything() {
            let before = start.left.unwrap_or_else(|| start.count_left(prefix));
            self.remaining = Some(before.saturating_sub(self.items.len()));
        }
        let last = self
            .items
            .last()
            .and_then(|object| object.record())
            .map(|record| record.key.as_ref());
        let last = last
            .unwrap_or_default()
            .strip_prefix(prefix)
            .unwrap_or_default();
        let version = i64::try_from(start.version.0).unwrap_or(i64::MAX);
        self.token = ContinueToken::following(last, version, self.remaining).encode();
    }
}

/// The start of a list.
struct Start {
    snapshot: Snapshot,
    version: Revision,
    after: Option<String>,
    left: Option<usize>,
    /// Kubernetes: version "0" is served from the cache, which ignores limits.
    unlimited: bool,
}

impl Start {
    fn new(snapshot: Snapshot, version: Revision) -> Start {
        Start {
            snapshot,
            version,
            after: None,
            left: None,
            unlimited: false,
        }
    }

    /// How many objects there are from the beginning of the page on.
    fn count_left(&self, prefix: &str) -> usize {
        match &self.after {
            None => self.snapshot.count(prefix),
            Some(after) => self
                .snapshot
                .range(prefix, Some(&format!("{prefix}{after}")))
                .count(),
        }
    }

    /// How many objects a page has, and the key after which it begins.
    fn bounds(&self, options: &ListOptions) -> (usize, Option<String>) {
        let limit = if options.limit == 0 || self.unlimited {
            usize::MAX
        } else {
            options.limit
        };
        let prefix = Key::prefix(&options.selection.namespace);
        (
            limit,
            self.after.as_ref().map(|after| format!("{prefix}{after}")),
        )
    }
}

/// Objects, and whether more follow.
pub(crate) type Found = (Vec<Object>, bool);

/// The objects after `after`, at most `limit`.
pub(crate) async fn select_any(
    resource: &Resource,
    snapshot: &Snapshot,
    selection: &Selection,
    after: Option<&str>,
    limit: usize,
) -> Result<Found, Status> {
    if !resource.is_custom() {
        return select(resource, snapshot, selection, after, limit);
    }
    let mut items = Vec::new();
    let Selection { labels, fields, .. } = selection;
    let mut candidates = Candidates::new(resource, snapshot, selection, after);
    loop {
        // Without a selection it is known how many are needed.
        let needed = match selection.is_everything() {
            true => limit.saturating_add(1) - items.len(),
            false => usize::MAX,
        };
        let records = candidates.take(needed.min(READ_AT_ONCE));
        if records.is_empty() {
            return Ok((items, false));
        }
        let objects = resource.render_all(records).await?.into_iter();
        items.extend(objects.filter(|object| matches_object(resource, object, labels, fields)));
        if items.len() > limit {
            items.truncate(limit);
            return Ok((items, true));
        }
    }
}

/// The records that may be selected, as far as can be told without looking at them, in the order of their keys.
struct Candidates<'a> {
    snapshot: &'a Snapshot,
    prefix: String,
    /// The key after which the next one is.
    after: Option<String>,
    /// The one key that can be selected.
    only: Option<Arc<str>>,
    /// A term that every selected object has.
    term: Option<Arc<str>>,
}

impl<'a> Candidates<'a> {
    fn new(
        resource: &Resource,
        snapshot: &'a Snapshot,
        selection: &Selection,
        after: Option<&str>,
    ) -> Candidates<'a> {
        Candidates {
            snapshot,
            prefix: Key::prefix(&selection.namespace),
            after: after.map(str::to_owned),
            only: selection.only(resource.kind()).map(|key| key.stored()),
            term: selection.index_term(resource),
        }
    }

    /// The next ones, at most `n`. Costs what it returns, wherever in the space that is.
    fn take(&mut self, n: usize) -> Vec<Arc<Record>> {
        let (prefix, after) = (&self.prefix, self.after.as_deref());
        let found: Vec<Arc<Record>> = match (&self.only, &self.term) {
            (Some(key), _) => {
                let is_after = |key: &str| after.is_none_or(|after| key > after);
                let found = self
                    .snapshot
                    .get(key)
                    .filter(|record| is_after(&record.key));
                found.cloned().into_iter().collect()
            }
            (None, Some(term)) => {
                let found = self.snapshot.with_term(term, prefix, after);
                found.take(n).cloned().collect()
            }
            (None, None) => self
                .snapshot
                .range(prefix, after)
                .take(n)
                .cloned()
                .collect(),
        };
        if let Some(last) = found.last() {
            self.after = Some(last.key.as_ref().into());
        }
        found
    }
}

/// The objects after `after`, at most `limit`, of a kind that no converter is called for.
fn select(
    resource: &Resource,
    snapshot: &Snapshot,
    selection: &Selection,
    after: Option<&str>,
    limit: usize,
) -> Result<Found, Status> {
    let Selection { labels, fields, .. } = selection;
    let mut items = Vec::new();
    let mut candidates = Candidates::new(resource, snapshot, selection, after);
    loop {
        let records = candidates.take(limit.saturating_add(1).min(READ_AT_ONCE));
        if records.is_empty() {
            return Ok((items, false));
        }
        for record in records {
            if !matches(resource, &record, labels, fields)? {
                continue;
            }
            if items.len() == limit {
                return Ok((items, true));
            }
            items.push(
                resource
                    .render_without_converter(&record)?
                    .ok_or_else(converter_required)?,
            );
        }
    }
}

/// 410 with a token that continues at the latest revision (inconsistent continuation).
fn expired_token(token: &ContinueToken) -> Status {
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a \
                   new list without the continue parameter, or use the continue token in this response to retrieve \
                   the remainder of the results. Continuing with the provided token results in an inconsistent list - \
                   objects that were created, modified, or deleted between the time the first chunk was returned and \
                   now may show up in the list.";
    let onward = ContinueToken {
        version: -1,
        start: token.start.clone(),
        left: None,
    }
    .encode();
    Status {
        token: Some(onward),
        ..Status::expired(message)
    }
}
