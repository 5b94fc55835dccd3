//! A line to the API server that can be cut, as a network can.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What comes in at its port goes to the API server, as long as it is not cut.
#[derive(Debug)]
pub struct Line {
    port: u16,
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    is_cut: AtomicBool,
    has_ended: AtomicBool,
    /// Both ends of every connection.
    sockets: Mutex<Vec<TcpStream>>,
}

impl Line {
    /// To a port of this machine.
    ///
    /// # Errors
    /// When there is no port or no thread to be had.
    pub fn to(target: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let inner = Arc::new(Inner::default());
        let theirs = Arc::clone(&inner);
        std::thread::Builder::new()
            .name("line".to_owned())
            .spawn(move || {
                for socket in listener.incoming() {
                    if theirs.has_ended.load(Ordering::SeqCst) {
                        return;
                    }
                    if let Ok(socket) = socket {
                        theirs.join(socket, target);
                    }
                }
            })?;
        Ok(Self { port, inner })
    }

    /// Where it begins.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Breaks all connections; those that come are broken at once.
    pub fn cut(&self) {
        self.inner.is_cut.store(true, Ordering::SeqCst);
        self.inner.break_all();
    }

    /// Lets connections through again.
    pub fn mend(&self) {
        self.inner.is_cut.store(false, Ordering::SeqCst);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.inner.has_ended.store(true, Ordering::SeqCst);
        self.inner.break_all();
        // The thread waits for a connection, and looks up when one comes.
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

    /// Joins a connection to the target. One that comes between a cut and its check is broken with the others.
    fn join(&self, near: TcpStream, target: u16) {
        let Ok(far) = TcpStream::connect(("127.0.0.1", target)) else {
            return;
        };
        let ends = (near.try_clone(), far.try_clone());
        let kept = (near.try_clone(), far.try_clone());
        let ((Ok(near_too), Ok(far_too)), (Ok(near_kept), Ok(far_kept))) = (ends, kept) else {
            return;
        };
        let mut sockets = self.sockets();
        if self.is_cut.load(Ordering::SeqCst) {
            let _ = near.shutdown(Shutdown::Both);
            return;
        }
        sockets.extend([near_kept, far_kept]);
        drop(sockets);
        std::thread::spawn(move || carry(near, far));
        std::thread::spawn(move || carry(far_too, near_too));
    }
}

/// Carries bytes one way until either end is closed.
fn carry(mut from: TcpStream, mut to: TcpStream) {
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
    fn what_goes_in_comes_out_until_it_is_cut() {
        let echo = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = echo.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for mut socket in echo.incoming().map_while(Result::ok) {
                let mut byte = [0];
                while socket.read_exact(&mut byte).is_ok() && socket.write_all(&byte).is_ok() {}
            }
        });
        let line = Line::to(target).unwrap();
        let said = |socket: &mut TcpStream| {
            let mut byte = [7];
            socket
                .write_all(&byte)
                .and_then(|()| socket.read_exact(&mut byte))
        };
        let connect = || TcpStream::connect(("127.0.0.1", line.port())).unwrap();
        let mut first = connect();
        said(&mut first).unwrap();
        line.cut();
        said(&mut first).unwrap_err();
        said(&mut connect()).unwrap_err();
        line.mend();
        said(&mut connect()).unwrap();
    }
}
