//! A TCP proxy to the API server whose connections can be cut, like a failing network.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Forwards connections to the API server until it is cut.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    is_cut: AtomicBool,
    has_ended: AtomicBool,
    /// Both sockets of every connection.
    sockets: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// Starts a proxy to a port of this machine.
    ///
    /// # Errors
    /// If no port is free or no thread can be started.
    pub fn to(target: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let inner = Arc::new(Inner::default());
        let shared = Arc::clone(&inner);
        std::thread::Builder::new()
            .name("proxy".to_owned())
            .spawn(move || {
                for socket in listener.incoming() {
                    if shared.has_ended.load(Ordering::SeqCst) {
                        return;
                    }
                    if let Ok(socket) = socket {
                        shared.join(socket, target);
                    }
                }
            })?;
        Ok(Self { port, inner })
    }

    /// Returns the port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Breaks all connections; new ones are broken at once.
    pub fn cut(&self) {
        self.inner.is_cut.store(true, Ordering::SeqCst);
        self.inner.break_all();
    }

    /// Accepts connections again.
    pub fn restore(&self) {
        self.inner.is_cut.store(false, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.inner.has_ended.store(true, Ordering::SeqCst);
        self.inner.break_all();
        // Wakes the thread, which waits for a connection.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

impl Inner {
    fn sockets(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn break_all(&self) {
        for socket in self.sockets().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Connects a client to the target. A connection that arrives while the proxy is being cut is broken too.
    fn join(&self, near: TcpStream, target: u16) {
        let Ok(far) = TcpStream::connect(("127.0.0.1", target)) else {
            return;
        };
        let ends = (near.try_clone(), far.try_clone());
        let registered = (near.try_clone(), far.try_clone());
        let ((Ok(near_too), Ok(far_too)), (Ok(near_registered), Ok(far_registered))) = (ends, registered)
        else {
            return;
        };
        let mut sockets = self.sockets();
        if self.is_cut.load(Ordering::SeqCst) {
            let _ = near.shutdown(Shutdown::Both);
            return;
        }
        sockets.extend([near_registered, far_registered]);
        drop(sockets);
        std::thread::spawn(move || copy(near, far));
        std::thread::spawn(move || copy(far_too, near_too));
    }
}

/// Copies bytes in one direction until either socket is closed.
fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count) = from.read(&mut bytes) {
        if count == 0 || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_forwarded_until_the_proxy_is_cut() {
        let echo = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = echo.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for mut socket in echo.incoming().map_while(Result::ok) {
                let mut byte = [0];
                while socket.read_exact(&mut byte).is_ok() && socket.write_all(&byte).is_ok() {}
            }
        });
        let proxy = Proxy::to(target).unwrap();
        let echo_byte = |socket: &mut TcpStream| {
            let mut byte = [7];
            socket
                .write_all(&byte)
                .and_then(|()| socket.read_exact(&mut byte))
        };
        let connect = || TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
        let mut first = connect();
        echo_byte(&mut first).unwrap();
        proxy.cut();
        echo_byte(&mut first).unwrap_err();
        echo_byte(&mut connect()).unwrap_err();
        proxy.restore();
        echo_byte(&mut connect()).unwrap();
    }
}
