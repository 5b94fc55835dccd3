//! A reopened journal has all committed records, whatever happened to its end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use dovetail_journal::{Journal, JournalError, Recovered, Repair};
use proptest::prelude::*;

fn open(dir: &Path) -> (Journal, Recovered) {
    Journal::open(dir).unwrap()
}

fn files(dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.file_name().unwrap().to_string_lossy().starts_with(prefix))
        .collect();
    found.sort();
    found
}

fn texts(recovered: &Recovered) -> Vec<String> {
    let text = |(_, bytes): &(u64, Vec<u8>)| String::from_utf8(bytes.clone()).unwrap();
    recovered.records.iter().map(text).collect()
}

#[test]
fn only_committed_records_are_restored() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, nothing) = open(dir.path());
    assert_eq!((nothing.last(), nothing.records.len()), (0, 0));
    assert_eq!(journal.append(b"a").unwrap(), 1);
    assert_eq!(journal.append(b"b").unwrap(), 2);
    journal.commit().unwrap();
    journal.append(b"never").unwrap();
    drop(journal);
    let (mut journal, recovered) = open(dir.path());
    assert_eq!(texts(&recovered), ["a", "b"]);
    assert_eq!(journal.append(b"c").unwrap(), 3);
    journal.commit().unwrap();
    drop(journal);
    assert_eq!(texts(&open(dir.path()).1), ["a", "b", "c"]);
}

#[test]
fn a_journal_is_opened_by_one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    let second = Journal::open(dir.path()).unwrap_err();
    assert!(matches!(second, JournalError::InUse { .. }), "{second}");
    drop(journal);
    Journal::open(dir.path()).unwrap();
}

#[test]
fn a_snapshot_replaces_the_records_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path());
    for round in 0..4 {
        journal.append(format!("r{round}").as_bytes()).unwrap();
        journal.snapshot(format!("s{round}").as_bytes()).unwrap();
    }
    journal.append(b"after").unwrap();
    journal.commit().unwrap();
    drop(journal);
    assert_eq!(files(dir.path(), "snapshot-").len(), 2);
    assert_eq!(
        files(dir.path(), "journal-").len(),
        2,
        "one after each snapshot that is kept"
    );
    let (_, recovered) = open(dir.path());
    assert_eq!(recovered.snapshot.as_ref().unwrap(), &(4, b"s3".to_vec()));
    assert_eq!(texts(&recovered), ["after"]);
}

#[test]
fn an_incomplete_snapshot_is_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path());
    for round in 0..2 {
        journal.append(format!("r{round}").as_bytes()).unwrap();
        journal.snapshot(format!("s{round}").as_bytes()).unwrap();
    }
    drop(journal);
    let newest = files(dir.path(), "snapshot-").pop().unwrap();
    let bytes = fs::read(&newest).unwrap();
    fs::write(&newest, &bytes[..bytes.len() - 3]).unwrap();
    let (_, recovered) = open(dir.path());
    assert_eq!(recovered.snapshot.as_ref().unwrap(), &(1, b"s0".to_vec()));
    assert_eq!(texts(&recovered), ["r1"]);
    assert_eq!(recovered.repairs, [Repair::BadSnapshot { path: newest }]);
}

#[test]
fn damage_before_the_end_is_reported_and_nothing_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path());
    for text in ["first", "second", "third"] {
        journal.append(text.as_bytes()).unwrap();
    }
    journal.commit().unwrap();
    drop(journal);
    let path = files(dir.path(), "journal-").pop().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[16 + 16] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = Journal::open(dir.path()).unwrap_err().to_string();
    assert!(
        error.contains("damaged at byte 16: record 1 is invalid, but later ones are valid"),
        "{error}"
    );
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn a_newer_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let path = files(dir.path(), "journal-").pop().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 2;
    fs::write(&path, &bytes).unwrap();
    let error = Journal::open(dir.path()).unwrap_err().to_string();
    assert!(
        error.contains("written in format 2 by a newer release"),
        "{error}"
    );
    fs::write(&path, b"something else entirely").unwrap();
    let error = Journal::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("not a journal file"), "{error}");
}

#[test]
fn discarded_records_are_never_read() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path());
    journal.append(b"a").unwrap();
    journal.commit().unwrap();
    journal.append(b"discarded").unwrap();
    journal.discard().unwrap();
    journal.check_writable(100_000).unwrap();
    assert_eq!(texts(&journal.read().unwrap()), ["a"]);
    assert_eq!(journal.append(b"b").unwrap(), 2);
    journal.commit().unwrap();
    drop(journal);
    let (_, recovered) = open(dir.path());
    assert_eq!(texts(&recovered), ["a", "b"]);
    assert!(recovered.repairs.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Cuts the last segment anywhere and appends garbage: all complete records before the cut are restored, and the journal
    /// continues without further repairs.
    #[test]
    fn an_incomplete_tail_loses_no_committed_record(
        sizes in prop::collection::vec(0usize..200, 1..30),
        segment_bytes in prop_oneof![Just(200u64), Just(1 << 20)],
        cut in 0.0..1.0f64,
        garbage in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = open(dir.path()).0.with_segment_bytes(segment_bytes);
        let payload = |i: usize, size: usize| vec![i as u8; size];
        for (i, size) in sizes.iter().enumerate() {
            journal.append(&payload(i, *size)).unwrap();
            if i % 3 == 0 {
                journal.commit().unwrap();
            }
        }
        journal.commit().unwrap();
        drop(journal);
        let path = files(dir.path(), "journal-").pop().unwrap();
        let bytes = fs::read(&path).unwrap();
        let keep = (bytes.len() as f64 * cut) as usize;
        let torn: Vec<u8> = bytes[..keep].iter().chain(&garbage).copied().collect();
        fs::write(&path, &torn).unwrap();
        if torn.len() >= 16 && torn[..12] != bytes[..12] {
            // A damaged header is an error, and nothing is changed.
            prop_assert!(Journal::open(dir.path()).is_err());
            return Ok(());
        }
        let (mut journal, recovered) = open(dir.path());
        let complete = recovered.records.len();
        for (i, (seq, bytes)) in recovered.records.iter().enumerate() {
            prop_assert_eq!((*seq, bytes), (i as u64 + 1, &payload(i, sizes[i])));
        }
        prop_assert_eq!(journal.append(b"next").unwrap(), complete as u64 + 1);
        journal.commit().unwrap();
        drop(journal);
        let (_, again) = open(dir.path());
        prop_assert_eq!(again.records.len(), complete + 1);
        prop_assert!(again.repairs.is_empty());
    }
}
