//! The database by itself: writes can be repeated, removals undo them, and reads leave out what the caller has.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dovetail_history::{
    EventRow, HistoryError, JobQuery, JobRow, KnownJobs, Readers, Schema, Sort, SortField, SortKey, Viewer,
    open,
};

fn row(id: u64) -> JobRow {
    JobRow {
        id,
        state: if id.is_multiple_of(3) {
            "failed"
        } else {
            "completed"
        }
        .to_owned(),
        reason: if id.is_multiple_of(6) { "time-limit" } else { "" }.to_owned(),
        user: format!("user-{}", id % 2),
        tenant: if id.is_multiple_of(4) { "b" } else { "a" }.to_owned(),
        name: format!("job-{}", id % 5),
        private: id.is_multiple_of(8),
        gpus: (id % 4) as u32,
        submitted: id as i64 * 10,
        gpu_time: 100 - id as i64,
        wait: 1,
        labels: vec![("kind".to_owned(), (id % 2).to_string())],
        key: Some(format!("key-{id}")),
        usage: vec![(1, 5), (2, id as i64)],
        record: format!("record {id}").into_bytes(),
    }
}

fn query() -> JobQuery {
    JobQuery::newest(1_000)
}

fn none_known() -> KnownJobs {
    KnownJobs {
        from: u64::MAX,
        below: Vec::new(),
    }
}

/// Returns the numbers of a list and its total.
fn list(readers: &Readers, query: &JobQuery, known: &KnownJobs) -> (Vec<u64>, u64) {
    let found = readers.list(query, known).unwrap();
    (found.jobs.iter().map(|(_, id)| *id).collect(), found.total)
}

/// Everything that can be read, for comparisons.
fn contents(readers: &Readers) -> impl PartialEq + std::fmt::Debug {
    let failed = JobQuery {
        states: Some(vec!["failed".to_owned()]),
        ..query()
    };
    let usage = readers.usage(&none_known(), (i64::MIN, i64::MAX)).unwrap();
    (
        list(readers, &query(), &none_known()),
        list(readers, &failed, &none_known()),
        usage,
        readers.records_from(0, 1_000).unwrap(),
        readers.job_of_key("user-1", "key-3").unwrap(),
    )
}

#[test]
fn writes_can_be_repeated_and_removals_undo_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let (mut writer, readers, schema) = open(&path).unwrap();
    assert_eq!(schema, Schema::Created);
    let rows: Vec<JobRow> = (1..=40).map(row).collect();
    writer.write(&rows, &[]).unwrap();
    let written = contents(&readers);
    writer.write(&rows[10..30], &[]).unwrap();
    assert_eq!(contents(&readers), written);
    let more: Vec<JobRow> = (41..=60).map(row).collect();
    writer.write(&more, &[]).unwrap();
    assert_eq!(writer.ids_from(41).unwrap().len(), 20);
    assert_eq!(writer.missing(&[1, 60, 61]).unwrap(), [61]);
    let removed: Vec<u64> = (41..=70).collect();
    assert_eq!(writer.remove(&removed).unwrap(), 20);
    assert_eq!(contents(&readers), written);
    let mut changed = row(3);
    (changed.labels, changed.record) = (vec![("new".to_owned(), String::new())], b"changed".to_vec());
    writer.write(&[changed], &[]).unwrap();
    assert_eq!(readers.record(3).unwrap().unwrap(), b"changed");
    for (label, found) in [(("new", None), vec![3]), (("kind", Some("1")), vec![1])] {
        let labelled = JobQuery {
            label: Some((label.0.to_owned(), label.1.map(str::to_owned))),
            to: Some(31),
            ..query()
        };
        assert_eq!(list(&readers, &labelled, &none_known()).0, found, "{label:?}");
    }
    drop(writer);
    assert_eq!(open(&path).unwrap().2, Schema::Existing);
}

#[test]
fn jobs_that_the_caller_has_are_neither_listed_nor_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, readers, _) = open(&dir.path().join("history.db")).unwrap();
    writer.write(&(1..=40).map(row).collect::<Vec<_>>(), &[]).unwrap();
    let known = KnownJobs {
        from: 31,
        below: vec![2, 9, 10, 99],
    };
    let others: Vec<u64> = (1..=30).filter(|id| !known.below.contains(id)).collect();
    let viewer = |tenants: &[&str]| {
        Some(Viewer {
            user: "user-1".to_owned(),
            tenants: tenants.iter().map(|t| (*t).to_owned()).collect(),
        })
    };
    let ascending = |field| Sort {
        field,
        descending: false,
    };
    type Filter = fn(&JobRow) -> bool;
    let cases: [(JobQuery, Filter); 7] = [
        (query(), |_| true),
        (
            JobQuery {
                states: Some(vec!["time-limit".to_owned()]),
                ..query()
            },
            |job| job.id.is_multiple_of(6),
        ),
        (
            JobQuery {
                viewer: viewer(&["b"]),
                ..query()
            },
            |job| job.user == "user-1" || (!job.private && job.tenant == "b"),
        ),
        (
            JobQuery {
                viewer: viewer(&[]),
                label: Some(("kind".to_owned(), None)),
                ..query()
            },
            |job| job.user == "user-1",
        ),
        (
            JobQuery {
                gpus_min: Some(2),
                tenant: Some("a".to_owned()),
                ..query()
            },
            |job| job.gpus >= 2 && job.tenant == "a",
        ),
        (
            JobQuery {
                text: Some("er-0".to_owned()),
                ..query()
            },
            |job| job.user == "user-0",
        ),
        (
            JobQuery {
                from: Some(50),
                to: Some(200),
                ..query()
            },
            |job| (50..200).contains(&job.submitted),
        ),
    ];
    for (query, filter) in cases {
        let mut expected: Vec<u64> = others.iter().copied().filter(|id| filter(&row(*id))).collect();
        for field in [SortField::Submitted, SortField::Name] {
            let mut paged = JobQuery {
                sort: ascending(field),
                limit: 4,
                ..query.clone()
            };
            let mut found = Vec::new();
            loop {
                let page = readers.list(&paged, &known).unwrap();
                assert_eq!(page.total, expected.len() as u64, "{paged:?}");
                found.extend(page.jobs.iter().map(|(_, id)| *id));
                match page.jobs.last() {
                    Some(last) => paged.after = Some(last.clone()),
                    None => break,
                }
            }
            if field == SortField::Name {
                expected.sort_by_key(|id| (SortKey::Text(row(*id).name), *id));
            }
            assert_eq!(found, expected, "{query:?}");
        }
    }
    let days = readers.usage(&known, (2, 2)).unwrap();
    assert_eq!(days.iter().map(|sum| sum.jobs).sum::<u64>(), others.len() as u64);
    assert_eq!(
        days.iter().map(|sum| sum.gpu_time as u64).sum::<u64>(),
        others.iter().sum::<u64>()
    );
}

#[test]
fn events_are_read_in_order_with_their_owners() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, readers, _) = open(&dir.path().join("history.db")).unwrap();
    let event = |number| EventRow {
        number,
        job: number.is_multiple_of(2).then_some(number / 2),
        body: number.to_string().into_bytes(),
    };
    writer
        .write(&[row(1)], &(1..=20).map(event).collect::<Vec<_>>())
        .unwrap();
    let events = readers.events((1, 5), None, 10).unwrap();
    assert_eq!(events.iter().map(|e| e.number).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(
        events[0].owner,
        Some(("user-1".to_owned(), "a".to_owned(), false))
    );
    assert_eq!(events[2].owner, None, "its job is not stored");
    assert_eq!(readers.events((0, 100), Some(3), 10).unwrap()[0].body, b"6");
    writer.remove_events_from(15).unwrap();
    assert_eq!(readers.events((0, 100), None, 100).unwrap().len(), 14);
}

#[test]
fn files_of_other_programs_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE x(y)").unwrap();
    drop(other);
    assert!(matches!(open(&path), Err(HistoryError::Foreign { .. })));
    assert!(Readers::open(&dir.path().join("none.db")).is_err());
}
