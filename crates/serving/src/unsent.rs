//! Limits on the memory of responses that have not been written.
//!
//! A response is charged to its connection, its user and the server until its last byte has been handed to the connection's
//! TLS session. While one of the three exceeds its limit, the server closes the connection with the response that has not
//! been read for the longest time.
//!
//! Invariant: each sum is within its limit, or is that of a single response: one that is larger than the limit can still be
//! read, alone. Connections that are being closed do not count.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

use mizzen_metrics::Families;
use mizzen_value::Str;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The cost of a response besides its body: the stream, its task, the request and the head.
const OVERHEAD: u64 = 4 * 1024;
/// The shortest time between two log lines about closed connections.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// How many bytes of responses may wait to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsentLimits {
    /// On one connection. Lists and stored objects share the store's memory and take about 200 KiB while they are
    /// written, compressed 600 KiB; there are at most 250 streams. Responses that are rendered whole (tables, metadata,
    /// YAML) take their size.
    pub per_connection: u64,
    /// For one user, on all connections: two full ones.
    pub per_user: u64,
    /// For all users: two at their limit. Slow readers can add this much to the memory of a server, besides at most
    /// 100 KiB per connection in the buffers of TLS and of `coalesce`.
    pub total: u64,
}

impl Default for UnsentLimits {
    fn default() -> UnsentLimits {
        UnsentLimits {
            per_connection: 128 << 20,
            per_user: 256 << 20,
            total: 512 << 20,
        }
    }
}

/// All responses that have not been written.
pub struct Unsent {
    limits: UnsentLimits,
    ledger: Mutex<UnsentLedger>,
}

#[derive(Default)]
struct UnsentLedger {
    total: u64,
    users: HashMap<Str, u64>,
    connections: HashMap<u64, Balance>,
    /// By number, oldest first.
    responses: BTreeMap<u64, UnsentResponse>,
    n_connections: u64,
    n_responses: u64,
    n_closed: u64,
    /// When a closed connection was last logged, and how many have been closed since.
    logged: Option<(Instant, u64)>,
}

/// The sum of a connection.
struct Balance {
    bytes: u64,
    close: Arc<Notify>,
    /// Whether it is being closed. Its responses no longer count, as they are about to be freed.
    is_closing: bool,
}

struct UnsentResponse {
    connection: u64,
    user: Str,
    bytes: u64,
    /// Since when nothing of it has been read.
    unread_since: Instant,
}

/// Which limit was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExceededLimit {
    Connection,
    User,
    Total,
}

impl Display for ExceededLimit {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            ExceededLimit::Connection => "connection",
            ExceededLimit::User => "user",
            ExceededLimit::Total => "total",
        })
    }
}

impl Unsent {
    /// Accounts of unread responses within `limits`.
    pub fn new(limits: UnsentLimits) -> Arc<Unsent> {
        Arc::new(Unsent {
            limits,
            ledger: Mutex::default(),
        })
    }

    /// Opens the account of a connection.
    pub fn connect(self: &Arc<Unsent>) -> Arc<ConnectionAccount> {
        let (mut ledger, close) = (self.ledger.lock(), Arc::new(Notify::new()));
        let number = ledger.n_connections;
        ledger.n_connections += 1;
        ledger.connections.insert(
            number,
            Balance {
                bytes: 0,
                close: close.clone(),
                is_closing: false,
            },
        );
        Arc::new(ConnectionAccount {
            unsent: self.clone(),
            number,
            close,
        })
    }

    /// Adds the metrics to a scrape.
    pub fn collect(&self, out: &mut Families) {
        let ledger = self.ledger.lock();
        out.gauge(
            "mizzen_unsent_response_bytes",
            "Bytes of responses that have not been written.",
        )
        .add(&[], ledger.total);
        out.counter(
            "mizzen_connections_closed_total",
            "Connections that were closed because of what they cost, by reason.",
        )
        .add(&[("reason", "unread")], ledger.n_closed);
    }
}

/// The account of a connection; closed on drop.
pub struct ConnectionAccount {
    unsent: Arc<Unsent>,
    number: u64,
    close: Arc<Notify>,
}

impl ConnectionAccount {
    /// Charges a response of `user` for `bytes`, until the returned value is dropped.
    pub(crate) fn charge(self: &Arc<ConnectionAccount>, user: &Str, bytes: u64) -> Charge {
        let mut ledger = self.unsent.ledger.lock();
        let (number, unread_since) = (ledger.n_responses, Instant::now());
        ledger.n_responses += 1;
        let response = UnsentResponse {
            connection: self.number,
            user: user.clone(),
            bytes: 0,
            unread_since,
        };
        ledger.responses.insert(number, response);
        ledger.set(number, bytes + OVERHEAD);
        ledger.enforce(number, &self.unsent.limits);
        Charge {
            connection: self.clone(),
            number,
        }
    }

    /// Resolves when the connection is to be closed.
    pub(crate) async fn closed(&self) {
        self.close.notified().await;
    }
}

impl Drop for ConnectionAccount {
    fn drop(&mut self) {
        self.unsent.ledger.lock().connections.remove(&self.number);
    }
}

/// The charge of one response; ends on drop.
///
/// Invariant: it holds the account of its connection, which lives as long as any of its responses.
pub(crate) struct Charge {
    connection: Arc<ConnectionAccount>,
    number: u64,
}

impl Charge {
    /// Changes how many bytes the response keeps.
    pub(crate) fn set(&self, bytes: u64) {
        let unsent = &self.connection.unsent;
        let mut ledger = unsent.ledger.lock();
        ledger.set(self.number, bytes + OVERHEAD);
        ledger.enforce(self.number, &unsent.limits);
    }

    /// Records that the client has read some of it.
    pub(crate) fn progress(&self) {
        if let Some(response) = self
            .connection
            .unsent
            .ledger
            .lock()
            .responses
            .get_mut(&self.number)
        {
            response.unread_since = Instant::now();
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut ledger = self.connection.unsent.ledger.lock();
        ledger.set(self.number, 0);
        ledger.responses.remove(&self.number);
    }
}

impl UnsentLedger {
    /// Changes the charge of a response. A connection that is being closed is not charged.
    fn set(&mut self, number: u64, bytes: u64) {
        let Some(response) = self.responses.get_mut(&number) else {
            return;
        };
        let Some(account) = self
            .connections
            .get_mut(&response.connection)
            .filter(|it| !it.is_closing)
        else {
            return;
        };
        let before = std::mem::replace(&mut response.bytes, bytes);
        account.bytes = account.bytes - before + bytes;
        self.total = self.total - before + bytes;
        match self.users.get_mut(&response.user) {
            Some(of_user) if *of_user - before + bytes > 0 => *of_user = *of_user - before + bytes,
            Some(_) => drop(self.users.remove(&response.user)),
            None => drop(self.users.insert(response.user.clone(), bytes)),
        }
    }

    /// Closes connections until the limits hold. The response `charged` is never closed for its own size.
    fn enforce(&mut self, charged: u64, limits: &UnsentLimits) {
        let Some(UnsentResponse {
            connection, user, ..
        }) = self.responses.get(&charged)
        else {
            return;
        };
        let (connection, user) = (*connection, user.clone());
        if self
            .connections
            .get(&connection)
            .is_some_and(|account| account.bytes > limits.per_connection)
            && let Some(oldest) = self.oldest(charged, |response| response.connection == connection)
        {
            self.close(oldest, ExceededLimit::Connection);
        }
        while self
            .users
            .get(&user)
            .is_some_and(|bytes| *bytes > limits.per_user)
        {
            let Some(oldest) = self.oldest(charged, |response| response.user == user) else {
                break;
            };
            self.close(oldest, ExceededLimit::User);
        }
        while self.total > limits.total {
            let Some(oldest) = self.oldest(charged, |_| true) else {
                break;
            };
            self.close(oldest, ExceededLimit::Total);
        }
    }

    /// The response that has not been read for the longest time, except `but`.
    fn oldest(&self, but: u64, matches: impl Fn(&UnsentResponse) -> bool) -> Option<u64> {
        let counts = |response: &UnsentResponse| response.bytes > 0 && matches(response);
        self.responses
            .iter()
            .filter(|(number, response)| **number != but && counts(response))
            .min_by_key(|(_, response)| response.unread_since)
            .map(|(number, _)| *number)
    }

    /// Closes the connection of a response. Its responses no longer count.
    fn close(&mut self, number: u64, limit: ExceededLimit) {
        let Some(UnsentResponse {
            connection,
            user,
            unread_since,
            ..
        }) = self.responses.get(&number)
        else {
            return;
        };
        let (connection, user, unread) = (*connection, user.clone(), unread_since.elapsed());
        let is_meant = |(_, response): &(&u64, &UnsentResponse)| response.connection == connection;
        let numbers: Vec<u64> = self
            .responses
            .iter()
            .filter(is_meant)
            .map(|(number, _)| *number)
            .collect();
        numbers.into_iter().for_each(|number| self.set(number, 0));
        if let Some(account) = self.connections.get_mut(&connection) {
            account.is_closing = true;
            account.close.notify_one();
        }
        self.n_closed += 1;
        let now = Instant::now();
        match &mut self.logged {
            Some((at, n_closed)) if now - *at < LOG_EVERY => *n_closed += 1,
            logged => {
                let n_more = logged.map_or(0, |(_, n_closed)| n_closed);
                *logged = Some((now, 0));
                tracing::warn!(
                    %user,
                    ?unread,
                    limit = %limit,
                    not_logged = n_more,
                    "too many unsent bytes, closed the connection with the response that was unread for the longest time"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KB: u64 = 1024;

    fn unsent(per_connection: u64, per_user: u64, total: u64) -> Arc<Unsent> {
        Unsent::new(UnsentLimits {
            per_connection: per_connection * KB,
            per_user: per_user * KB,
            total: total * KB,
        })
    }

    /// Charges so many KB in all.
    fn charge(connection: &Arc<ConnectionAccount>, user: &str, kb: u64) -> Charge {
        connection.charge(&user.into(), kb * KB - OVERHEAD)
    }

    async fn is_closed(connection: &ConnectionAccount) -> bool {
        tokio::time::timeout(Duration::ZERO, connection.closed())
            .await
            .is_ok()
    }

    async fn later() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    fn sums(unsent: &Unsent) -> (u64, usize, usize) {
        let ledger = unsent.ledger.lock();
        (
            ledger.total / KB,
            ledger.users.len(),
            ledger.responses.len(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_too_many_unread_bytes_is_closed() {
        let unsent = unsent(100, 1_000, 1_000);
        let (one, other) = (unsent.connect(), unsent.connect());
        let first = charge(&one, "ann", 60);
        let second = charge(&other, "ann", 60);
        assert!(!is_closed(&one).await && !is_closed(&other).await);
        let third = charge(&one, "bob", 60);
        assert!(is_closed(&one).await && !is_closed(&other).await);
        assert_eq!(
            sums(&unsent),
            (60, 1, 3),
            "a connection that is being closed does not count"
        );
        drop((first, second, third));
        assert_eq!(sums(&unsent), (0, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_unread_connection_of_a_user_is_closed() {
        let unsent = unsent(1_000, 100, 1_000);
        let connections: Vec<Arc<ConnectionAccount>> = (0..4).map(|_| unsent.connect()).collect();
        let mut charges = Vec::new();
        for (connection, user) in connections.iter().zip(["bob", "ann", "ann", "ann"]) {
            charges.push(charge(connection, user, 40));
            later().await;
            // The client of the second goes on reading.
            charges.get(1).into_iter().for_each(Charge::progress);
        }
        let mut closed = Vec::new();
        for connection in &connections {
            closed.push(is_closed(connection).await);
        }
        assert_eq!(closed, [false, false, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_connections_of_all_users_are_closed_until_the_sum_is_within_the_limit() {
        let unsent = unsent(1_000, 1_000, 100);
        let connections: Vec<Arc<ConnectionAccount>> = (0..4).map(|_| unsent.connect()).collect();
        let mut charges = Vec::new();
        for (connection, (user, kb)) in
            connections
                .iter()
                .zip([("ann", 20), ("bob", 20), ("eve", 50), ("joe", 50)])
        {
            charges.push(charge(connection, user, kb));
            later().await;
        }
        let mut closed = Vec::new();
        for connection in &connections {
            closed.push(is_closed(connection).await);
        }
        assert_eq!(closed, [true, true, false, false]);
        assert_eq!(sums(&unsent).0, 100);
        let mut families = Families::default();
        unsent.collect(&mut families);
        let text = families.to_string();
        assert!(
            text.contains("mizzen_connections_closed_total{reason=\"unread\"} 2\n"),
            "{text}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_is_larger_than_every_limit_can_be_read_alone() {
        let unsent = unsent(10, 20, 30);
        let (one, other) = (unsent.connect(), unsent.connect());
        let large = charge(&one, "ann", 100);
        assert!(!is_closed(&one).await);
        later().await;
        let small = charge(&other, "ann", 5);
        assert!(
            is_closed(&one).await && !is_closed(&other).await,
            "until another response is charged"
        );
        drop((large, small));
    }

    #[tokio::test(start_paused = true)]
    async fn a_growing_response_counts_with_its_current_size() {
        let unsent = unsent(1_000, 100, 1_000);
        let (one, other) = (unsent.connect(), unsent.connect());
        let (still, growing) = (charge(&one, "ann", 40), charge(&other, "ann", 40));
        growing.set(55 * KB);
        assert!(!is_closed(&one).await);
        growing.set(70 * KB);
        assert!(is_closed(&one).await && !is_closed(&other).await);
        drop((still, growing));
        assert_eq!(sums(&unsent), (0, 0, 0));
    }
}
