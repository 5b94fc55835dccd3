//! CPUs, NUMA domains and memory, read from `/sys` and `/proc`.

use std::fs;
use std::path::PathBuf;

/// Bytes since the machine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct IoBytes {
    pub(crate) disk_read: u64,
    pub(crate) disk_written: u64,
    pub(crate) network_received: u64,
    pub(crate) network_sent: u64,
}

impl IoBytes {
    /// Replaces the counters and returns by how much they have grown. A counter that was reset counts as unchanged.
    pub(crate) fn replace_by(&mut self, now: IoBytes) -> IoBytes {
        let before = std::mem::replace(self, now);
        IoBytes {
            disk_read: now.disk_read.saturating_sub(before.disk_read),
            disk_written: now.disk_written.saturating_sub(before.disk_written),
            network_received: now.network_received.saturating_sub(before.network_received),
            network_sent: now.network_sent.saturating_sub(before.network_sent),
        }
    }
}

/// Bytes of a sector in `/proc/diskstats`, whatever the disk has.
const SECTOR: u64 = 512;
/// Prefixes of block devices that are not disks, or are made of disks that are counted themselves.
const NO_DISKS: [&str; 5] = ["loop", "ram", "zram", "dm-", "md"];

/// Root of the file system to read from; a temporary folder in tests.
#[derive(Clone, Debug)]
pub(crate) struct System {
    root: PathBuf,
}

impl System {
    /// Reads from this machine.
    pub(crate) fn here() -> Self {
        Self { root: "/".into() }
    }

    /// Returns the CPUs of each NUMA domain that this process may use. Without NUMA information there is one domain.
    pub(crate) fn domains(&self) -> Vec<Vec<u32>> {
        let allowed = self.allowed_cpus();
        let folder = self.root.join("sys/devices/system/node");
        let mut domains: Vec<(u32, Vec<u32>)> = Vec::new();
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|n| n.strip_prefix("node")?.parse().ok());
            let list = fs::read_to_string(entry.path().join("cpulist")).ok();
            if let (Some(number), Some(list)) = (number, list) {
                let mut cpus = cpu_list(&list);
                cpus.retain(|cpu| allowed.contains(cpu));
                domains.push((number, cpus));
            }
        }
        domains.sort();
        let found: Vec<Vec<u32>> = domains.into_iter().map(|(_, cpus)| cpus).collect();
        if found.iter().all(Vec::is_empty) {
            return vec![allowed];
        }
        found
    }

    fn allowed_cpus(&self) -> Vec<u32> {
        let status = fs::read_to_string(self.root.join("proc/self/status")).unwrap_or_default();
        let line = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
        let allowed = cpu_list(line.unwrap_or_default());
        if !allowed.is_empty() {
            return allowed;
        }
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        (0..u32::try_from(count).unwrap_or(1)).collect()
    }

    /// Returns total memory and memory in use, in MiB.
    pub(crate) fn memory_mib(&self) -> (u64, u64) {
        let text = fs::read_to_string(self.root.join("proc/meminfo")).unwrap_or_default();
        let kib = |name: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|l| l.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok())
        };
        let total = kib("MemTotal").unwrap_or(0);
        let available = kib("MemAvailable").unwrap_or(0);
        (total >> 10, total.saturating_sub(available) >> 10)
    }

    /// Returns the bytes that all disks and network interfaces have moved.
    pub(crate) fn io_bytes(&self) -> IoBytes {
        let mut sum = IoBytes::default();
        let number = |field: Option<&&str>| field.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let disks = fs::read_to_string(self.root.join("proc/diskstats")).unwrap_or_default();
        for line in disks.lines() {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let name = fields.get(2).copied().unwrap_or_default();
            // Partitions are not in this folder.
            let is_whole = !name.is_empty() && self.root.join("sys/block").join(name).exists();
            if is_whole && !NO_DISKS.iter().any(|prefix| name.starts_with(prefix)) {
                sum.disk_read += number(fields.get(5)).saturating_mul(SECTOR);
                sum.disk_written += number(fields.get(9)).saturating_mul(SECTOR);
            }
        }
        let interfaces = fs::read_to_string(self.root.join("proc/net/dev")).unwrap_or_default();
        for (name, rest) in interfaces.lines().filter_map(|line| line.split_once(':')) {
            let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
            if name.trim() != "lo" {
                sum.network_received += number(fields.first());
                sum.network_sent += number(fields.get(8));
            }
        }
        sum
    }

    /// Returns busy ticks and all ticks of all CPUs since the machine started.
    pub(crate) fn cpu_ticks(&self) -> (u64, u64) {
        let text = fs::read_to_string(self.root.join("proc/stat")).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("cpu "));
        let fields = line.unwrap_or_default().split_ascii_whitespace().take(8);
        let ticks: Vec<u64> = fields.map(|f| f.parse().unwrap_or(0)).collect();
        let all: u64 = ticks.iter().sum();
        // The columns `idle` and `iowait`.
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        (all - idle, all)
    }
}

/// Parses a list such as `0-3,8,10-11`. Malformed parts are skipped.
fn cpu_list(text: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse::<u32>())
            && last < 1 << 16
        {
            cpus.extend(first..=last);
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, System) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let system = System {
            root: dir.path().to_owned(),
        };
        (dir, system)
    }

    #[test]
    fn domains_are_sorted_and_contain_only_allowed_cpus() {
        let (_dir, system) = machine(&[
            ("sys/devices/system/node/node1/cpulist", "4-7,12\n"),
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            ("sys/devices/system/node/has_cpu", "0-1\n"),
            ("proc/self/status", "Name:\tx\nCpus_allowed_list:\t1-5\n"),
            (
                "proc/meminfo",
                "MemTotal:       2048000 kB\nMemAvailable:   1024000 kB\n",
            ),
            ("proc/stat", "cpu  10 1 5 100 20 0 4 0 0 0\ncpu0 1 1\n"),
        ]);
        assert_eq!(system.domains(), [vec![1, 2, 3], vec![4, 5]]);
        assert_eq!(system.memory_mib(), (2000, 1000));
        assert_eq!(system.cpu_ticks(), (20, 140));
    }

    #[test]
    fn bytes_of_disks_and_interfaces_are_summed() {
        let (dir, system) = machine(&[
            (
                "proc/diskstats",
                " 8 0 sda 1 0 10 0 1 0 20 0 0 0 0\n 8 1 sda1 1 0 10 0 1 0 20 0 0 0 0\n 7 0 loop0 1 0 99 0 1 0 99 0\n",
            ),
            (
                "proc/net/dev",
                "Inter-| Receive | Transmit\n face |bytes packets\n    lo: 7 1 0 0 0 0 0 0 7 1\n  eth0: 300 3 0 0 0 0 0 0 40 1\n",
            ),
            ("sys/block/sda/size", ""),
            ("sys/block/loop0/size", ""),
        ]);
        let bytes = system.io_bytes();
        let expected = IoBytes {
            disk_read: 5120,
            disk_written: 10240,
            network_received: 300,
            network_sent: 40,
        };
        assert_eq!(bytes, expected);
        let mut last = IoBytes {
            disk_read: 5000,
            network_sent: 50,
            ..expected
        };
        let change = last.replace_by(bytes);
        assert_eq!(
            (change.disk_read, change.disk_written, change.network_sent),
            (120, 0, 0)
        );
        assert_eq!(last, bytes);
        std::fs::remove_dir_all(dir.path().join("proc")).unwrap();
        assert_eq!(system.io_bytes(), IoBytes::default());
    }

    #[test]
    fn a_machine_without_information_has_one_domain() {
        let (_dir, system) = machine(&[("proc/meminfo", "MemTotal: lots\n")]);
        assert_eq!(system.domains().len(), 1);
        assert!(!system.domains()[0].is_empty());
        assert_eq!((system.memory_mib(), system.cpu_ticks()), ((0, 0), (0, 0)));
    }

    #[test]
    fn this_machine_has_cpus_and_memory() {
        let here = System::here();
        assert!(here.domains().iter().flatten().count() > 0);
        assert!(here.memory_mib().0 > 0);
        assert!(here.cpu_ticks().1 > 0);
    }

    #[test]
    fn malformed_parts_of_a_cpu_list_are_skipped() {
        assert_eq!(cpu_list("0-2,8,x,5-,9-10\n"), [0, 1, 2, 8, 9, 10]);
        assert!(cpu_list("").is_empty());
        assert!(cpu_list("0-4294967295").is_empty());
    }
}
