//! The network between servers, etcd and its members: TCP connections that can be held up, reset and healed.
//!
//! Each server reaches each member through a port of its own, and members reach each other through one port per member. Which
//! member a connection between members comes from is in its first request.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What happens to connections that are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Nothing arrives until it is healed, and no end notices.
    Hold,
    /// Requests arrive, and answers do not until it is healed.
    HoldAnswers,
    /// They are reset, and so is every new one.
    Reset,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Server(usize),
    Member(usize),
    Unknown,
}

/// Which connections are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Between {
    /// Those of a member with the other members.
    Members(usize),
    /// Those of a server with all members.
    Server(usize),
    /// Those of a server with one member.
    ServerAndMember(usize, usize),
}

impl Between {
    fn concerns(self, from: End, to: usize) -> bool {
        match (self, from) {
            (Between::Members(member), End::Member(from)) => from == member || to == member,
            (Between::Members(member), End::Unknown) => to == member,
            (Between::Server(server), End::Server(from)) => from == server,
            (Between::ServerAndMember(server, member), End::Server(from)) => {
                from == server && to == member
            }
            _ => false,
        }
    }
}

type State = Option<(Between, Cut)>;

/// Ports that forward to members. Dropping it closes them.
pub(crate) struct Network {
    state: watch::Sender<State>,
    /// The ids of the members, once they are known.
    ids: Arc<Mutex<Vec<u64>>>,
    tasks: Mutex<JoinSet<()>>,
}

impl Network {
    pub(crate) fn new() -> Network {
        Network {
            state: watch::Sender::new(None),
            ids: Arc::default(),
            tasks: Mutex::default(),
        }
    }

    /// Tells which id each member has.
    pub(crate) fn name_members(&self, ids: Vec<u64>) {
        *self.ids.lock() = ids;
    }

    pub(crate) fn cut(&self, between: Between, cut: Cut) {
        self.state.send_replace(Some((between, cut)));
    }

    pub(crate) fn heal(&self) {
        self.state.send_replace(None);
    }

    /// A port at which `from` reaches the port `target` of the member `to`.
    pub(crate) async fn port(&self, from: End, to: usize, target: u16) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (state, ids) = (self.state.subscribe(), self.ids.clone());
        self.tasks.lock().spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (state, ids) = (state.clone(), ids.clone());
                connections.spawn(async move {
                    let from = match from {
                        End::Unknown => sender(&client, &ids).await,
                        known => known,
                    };
                    let mut route = Route {
                        from,
                        to,
                        is_back: false,
                        state,
                    };
                    // Its end is that of the connection.
                    let _ = route.forward(client, target).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        port
    }
}

/// Who sends the first request of a connection. etcd: `X-Server-From` has the id of a member (rafthttp).
async fn sender(client: &TcpStream, ids: &Mutex<Vec<u64>>) -> End {
    let mut head = [0; 4096];
    let Ok(length) = client.peek(&mut head).await else {
        return End::Unknown;
    };
    let head = String::from_utf8_lossy(&head[..length]).to_ascii_lowercase();
    let id = head
        .lines()
        .find_map(|line| line.strip_prefix("x-server-from:"));
    let id = id.and_then(|id| u64::from_str_radix(id.trim(), 16).ok());
    let member = id.and_then(|id| ids.lock().iter().position(|known| *known == id));
    member.map_or(End::Unknown, End::Member)
}

/// Where a connection comes from and goes.
struct Route {
    from: End,
    to: usize,
    /// Whether this is the direction of answers.
    is_back: bool,
    state: watch::Receiver<State>,
}

impl Route {
    async fn forward(&mut self, mut client: TcpStream, target: u16) -> io::Result<()> {
        if self.open().await.is_err() {
            return client.set_zero_linger();
        }
        let mut member = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await?;
        let (from_client, to_client) = client.split();
        let (from_member, to_member) = member.split();
        let (mut there, mut back) = (self.clone(), self.clone());
        back.is_back = true;
        let ended = tokio::select! {
            ended = there.pump(from_client, to_member) => ended,
            ended = back.pump(from_member, to_client) => ended,
        };
        if ended.is_err() {
            client.set_zero_linger()?;
            member.set_zero_linger()?;
        }
        Ok(())
    }

    /// Waits while the connection is held up. An error if it is reset.
    async fn open(&mut self) -> io::Result<()> {
        loop {
            match self.cut() {
                None => return Ok(()),
                Some(Cut::Reset) => return Err(io::ErrorKind::ConnectionReset.into()),
                Some(Cut::HoldAnswers) if !self.is_back => return Ok(()),
                Some(Cut::Hold | Cut::HoldAnswers) => self.changed().await?,
            }
        }
    }

    fn cut(&mut self) -> Option<Cut> {
        let (from, to) = (self.from, self.to);
        let state = *self.state.borrow_and_update();
        state
            .filter(|(between, _)| between.concerns(from, to))
            .map(|(_, cut)| cut)
    }

    async fn changed(&mut self) -> io::Result<()> {
        self.state.changed().await.map_err(io::Error::other)
    }

    /// Forwards one direction.
    async fn pump(&mut self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            self.open().await?;
            let length = tokio::select! {
                read = from.read(&mut buffer) => read?,
                changed = self.changed() => {
                    changed?;
                    continue;
                }
            };
            // What was read when the connection was cut arrives later, or never.
            self.open().await?;
            match length {
                0 => return Ok(()),
                length => to.write_all(&buffer[..length]).await?,
            }
        }
    }
}

impl Clone for Route {
    fn clone(&self) -> Route {
        Route {
            from: self.from,
            to: self.to,
            is_back: self.is_back,
            state: self.state.clone(),
        }
    }
}

/// Long enough for a request to pass, on a busy machine; a request that is held up never does.
const HELD: Duration = Duration::from_millis(200);

#[tokio::test]
async fn a_connection_is_held_up_reset_and_healed() {
    let echo = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let target = echo.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = echo.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    let network = Network::new();
    let port = network.port(End::Server(0), 1, target).await;
    let connect = async || {
        let address = (Ipv4Addr::LOCALHOST, port);
        TcpStream::connect(address).await.unwrap()
    };
    let mut stream = connect().await;
    let ask = async |stream: &mut TcpStream| -> io::Result<u8> {
        stream.write_all(b"a").await?;
        stream.read_u8().await
    };
    assert_eq!(ask(&mut stream).await.unwrap(), b'a');
    // Another server's and another member's connections do not concern it.
    network.cut(Between::Server(1), Cut::Reset);
    network.cut(Between::ServerAndMember(0, 0), Cut::Reset);
    network.cut(Between::Members(1), Cut::Reset);
    assert_eq!(ask(&mut stream).await.unwrap(), b'a');

    network.cut(Between::ServerAndMember(0, 1), Cut::Hold);
    let held = tokio::time::timeout(HELD, ask(&mut stream)).await;
    assert!(held.is_err(), "{held:?}");
    network.heal();
    assert_eq!(stream.read_u8().await.unwrap(), b'a');
    network.cut(Between::Server(0), Cut::HoldAnswers);
    let held = tokio::time::timeout(HELD, ask(&mut stream)).await;
    assert!(held.is_err(), "{held:?}");
    network.heal();
    assert_eq!(stream.read_u8().await.unwrap(), b'a');
    network.cut(Between::Server(0), Cut::Reset);
    ask(&mut stream).await.expect_err("it is reset");
    ask(&mut connect().await)
        .await
        .expect_err("so is a new one");
    network.heal();
    assert_eq!(ask(&mut connect().await).await.unwrap(), b'a');
}

#[tokio::test]
async fn the_member_that_sends_is_known_from_its_first_request() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let ids = Mutex::new(vec![7, 0xab]);
    for (head, expected) in [
        ("X-Server-From: ab", End::Member(1)),
        ("X-Server-From: 9", End::Unknown),
        ("Host: a", End::Unknown),
    ] {
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = format!("POST /raft HTTP/1.1\r\n{head}\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        assert_eq!(sender(&accepted, &ids).await, expected);
    }
}
