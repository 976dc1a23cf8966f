// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The server: a thread that listens, on a processor that is not the worker's.
//!
//! One single-threaded runtime serves the Unix socket and, where the policy asks for it, TCP: with
//! TLS, or without it on loopback. Routes that wait for the node run on a bounded number of further
//! threads. Everything that an unknown peer can use up has a bound: connections (for TCP also by
//! address), the time for a handshake and for a request's head, the head's length, and the time for
//! which a peer may read nothing.

use std::cell::RefCell;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use weir_https::impatient;
use weir_node::Serving;
use weir_platform::cpu::{self, CpuRequest, SchedulingClass};
use weir_platform::slots::{Slot, network};
use weir_policy::{Policy, Reservation};

use crate::app::App;
use crate::caller::ConnectionOrigin;
use crate::error::{ErrorCode, Rejection};
use crate::limits::ApiLimits;
use crate::refused::TurnAwayReason;
use crate::service::RequestService;
use crate::tls::{self, TcpEndpoint};

/// A listening server. Dropping this value ends it; answers under way get one more second.
#[derive(Debug)]
pub struct Server {
    stop: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at the node's socket. A socket that a killed node left is replaced.
    ///
    /// # Errors
    /// The path is taken by a node that answers, or cannot be bound; or no thread can be had.
    pub fn start(serving: Serving) -> io::Result<Self> {
        let api = serving.policy.api.clone();
        let endpoint = tls::bind(&api)?;
        let listener = bind(&serving.socket)?;
        let processor = own_processor(&serving.policy);
        let (stop, stopped) = watch::channel(());
        let (told, started) = sync_channel(1);
        let thread = std::thread::Builder::new().name("weir-api".into()).spawn(move || {
            // The reservation is held until the thread ends.
            let _held = processor.and_then(hold);
            let limits = ApiLimits::of(&api);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(limits.blocking_threads)
                .thread_name("weir-api-work")
                .on_thread_start(move || hold_until_it_ends(processor))
                .build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => {
                    let _gone = told.send(Err(error));
                    return;
                }
            };
            let app = Arc::new(App::new(serving.control, limits));
            let service = Arc::new(RequestService::new(app));
            runtime.block_on(async move {
                let both = UnixListener::from_std(listener).and_then(|listener| {
                    let endpoint = endpoint.map(|TcpEndpoint { listener, acceptor }| {
                        Ok::<_, io::Error>((TcpListener::from_std(listener)?, acceptor))
                    });
                    Ok((listener, endpoint.transpose()?))
                });
                match both {
                    Ok((listener, endpoint)) => {
                        let _gone = told.send(Ok(()));
                        if let Some((listener, acceptor)) = endpoint {
                            tokio::spawn(listen_remote(listener, acceptor, Arc::clone(&service)));
                        }
                        listen(&listener, &service, stopped).await;
                    }
                    Err(error) => {
                        let _gone = told.send(Err(error));
                    }
                }
            });
            runtime.shutdown_timeout(END_PATIENCE);
        })?;
        match started.recv() {
            Ok(Ok(())) => Ok(Self { stop: Some(stop), thread: Some(thread) }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::other("the interface's thread died")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already; the node goes on without it.
            let _ended = thread.join();
        }
    }
}

/// Binds the calling thread to this processor, at [`NICE`] if the process may raise priorities.
/// Returns `None` if the system refuses; the thread then runs on any processor, as ordinary work.
fn hold(processor: u32) -> Option<cpu::CpuReservation> {
    let request =
        |nice| CpuRequest { cpu: Some(processor), class: SchedulingClass::Normal { nice } };
    cpu::CpuReservation::take(request(NICE)).or_else(|_| cpu::CpuReservation::take(request(0))).ok()
}

/// Binds the calling thread as [`hold`] does, until the thread ends.
fn hold_until_it_ends(processor: Option<u32>) {
    thread_local! {
        static HELD: RefCell<Option<cpu::CpuReservation>> = const { RefCell::new(None) };
    }
    HELD.set(processor.and_then(hold));
}

/// Binds the node's Unix socket, which only root may open.
fn bind(path: &Path) -> io::Result<StdListener> {
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("{}: a node answers here already", path.display()),
        ));
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = StdListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Returns a processor that the worker is not pinned to; `None` if there is no choice.
fn own_processor(policy: &Policy) -> Option<u32> {
    if matches!(policy.node.reservation, Reservation::None | Reservation::Deadline) {
        return None;
    }
    let division = cpu::division();
    let worker = policy.node.worker_cpu.unwrap_or(division.worker);
    let mut all = division.others.into_iter().chain([division.worker]);
    all.find(|processor| *processor != worker)
}

async fn listen(
    listener: &UnixListener,
    service: &Arc<RequestService>,
    mut stopped: watch::Receiver<()>,
) {
    let app = service.app();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => return end(app).await,
        };
        let Ok((stream, _)) = accepted else {
            // The process may be out of descriptors. Trying again at once would take a processor.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(peer) = stream.peer_cred() else { continue };
        let origin = ConnectionOrigin::Local { uid: peer.uid() };
        match app.connections.take() {
            Some(slot) => {
                tokio::spawn(converse(stream, origin, Arc::clone(service), slot));
            }
            None => {
                let text = refusal_text(&app.too_many_connections());
                // This does not wait: the peer may read nothing.
                let _sent = stream.try_write(&text);
            }
        }
    }
}

/// Accepts TCP connections until the runtime ends.
async fn listen_remote(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    service: Arc<RequestService>,
) {
    let app = service.app();
    loop {
        let Ok((stream, address)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // A connection beyond the bound is closed without a word: a refusal would need a handshake,
        // which costs more.
        let Some(of_address) = app.remote_addresses.take(network(address.ip())) else { continue };
        let Some(slot) = app.remote_connections.take() else { continue };
        let (acceptor, service) = (acceptor.clone(), Arc::clone(&service));
        tokio::spawn(async move {
            // Sends small answers at once. If the option fails, they only wait a little.
            let _small = stream.set_nodelay(true);
            let origin = ConnectionOrigin::Remote(address.ip());
            let Some(acceptor) = acceptor else {
                return converse(stream, origin, service, slot).await;
            };
            let patience = service.app().limits.request_time;
            let handshake = tokio::time::timeout(patience, acceptor.accept(stream));
            if let Ok(Ok(stream)) = handshake.await {
                converse(stream, origin, service, slot).await;
            }
            drop(of_address);
        });
    }
}

/// Waits for answers that are under way, for [`END_PATIENCE`] at most.
async fn end(app: &App) {
    let until = tokio::time::Instant::now() + END_PATIENCE;
    while app.under_way.taken() > 0 && tokio::time::Instant::now() < until {
        tokio::time::sleep(END_POLL).await;
    }
}

/// Serves the requests of one connection, and tells the peer why the connection ends.
async fn converse<S>(stream: S, origin: ConnectionOrigin, requests: Arc<RequestService>, slot: Slot)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let app = requests.app();
    let limits = app.limits;
    let answering = Arc::clone(&requests);
    let service = service_fn(move |request: Request<Incoming>| {
        let (requests, origin) = (Arc::clone(&answering), origin.clone());
        Box::pin(async move {
            let answer = requests.answer(&origin, request.map(Body::new)).await;
            Ok::<_, std::convert::Infallible>(answer)
        })
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request_time)
        .max_buf_size(limits.head_bytes)
        .serve_connection(TokioIo::new(impatient(stream, READER_PATIENCE)), service);
    let ended = poll_fn(|context| connection.poll_without_shutdown(context)).await;
    let mut stream = connection.into_parts().io.into_inner();
    if ended.as_ref().is_err_and(has_stalled) {
        app.refused.turn_away(TurnAwayReason::Reader);
    }
    if ended.is_err_and(|error| error.is_timeout()) {
        let seconds = limits.request_time.as_secs_f64();
        let text = format!("the request's head did not come within {seconds} s");
        let rejection = Rejection::new(ErrorCode::TooSlow, text);
        app.refused.answer(rejection.status());
        let text = refusal_text(&rejection);
        // The peer may read nothing either.
        let _sent = tokio::time::timeout(LAST_WORD_PATIENCE, stream.write_all(&text)).await;
    }
    let _closed = tokio::time::timeout(LAST_WORD_PATIENCE, stream.shutdown()).await;
    drop(slot);
}

/// Returns true if the connection ended because its peer did not read.
fn has_stalled(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::TimedOut)
}

/// Returns a whole HTTP answer, to be written to a connection that is not served.
fn refusal_text(error: &Rejection) -> Vec<u8> {
    let status = error.status();
    let body = serde_json::to_string(error.body()).unwrap_or_default();
    format!(
        "HTTP/1.1 {} {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default(),
        body.len()
    )
    .into_bytes()
}

/// The nice value of the server's threads. While the processors are busy, they run before ordinary
/// work and after a worker, which is at -20 or real-time.
const NICE: i32 = -10;
/// The longest time for which a peer may read nothing. A program that reads a capture may be
/// stopped for a moment.
const READER_PATIENCE: Duration = Duration::from_secs(30);
/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// The time for telling the peer of a closing connection why.
const LAST_WORD_PATIENCE: Duration = Duration::from_secs(1);
/// The time that answers under way get when the node ends.
const END_PATIENCE: Duration = Duration::from_secs(1);
const END_POLL: Duration = Duration::from_millis(5);
