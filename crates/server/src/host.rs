//! The names of this machine and of the current user.

/// Returns the host name of this machine.
pub fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim().to_owned();
    (!name.is_empty()).then_some(name)
}

/// Returns the name of the current user.
pub fn user_name() -> String {
    let of = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    of("USER")
        .or_else(|| of("LOGNAME"))
        .unwrap_or_else(|| "admin".to_owned())
}
