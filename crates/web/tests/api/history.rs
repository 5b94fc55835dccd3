//! Jobs that have left memory are listed, shown and counted as before.

use dovetail_cluster::{Actor, TaskEnd};
use dovetail_model::NodeId;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::server::Server;

/// A job of a random history.
#[derive(Debug, Clone)]
struct Past {
    name: u8,
    user: u8,
    gpus: u8,
    private: bool,
    label: Option<u8>,
    /// Completed, failed, cancelled, dependency failed, or not ended.
    end: u8,
}

fn histories() -> impl Strategy<Value = Vec<Past>> {
    let job = (
        0..4u8,
        0..3u8,
        1..5u8,
        any::<bool>(),
        prop::option::of(0..3u8),
        0..5u8,
    );
    let past = job.prop_map(|(name, user, gpus, private, label, end)| Past {
        name,
        user,
        gpus,
        private,
        label,
        end,
    });
    prop::collection::vec(past, 1..25)
}

/// Queries with every filter and every order, by themselves and together.
fn queries() -> Vec<String> {
    let filters = [
        "",
        "state=completed",
        "state=failed",
        "state=cancelled,failed",
        "state=dependency-failed",
        "state=finished",
        "state=unfinished",
        "state=queued,completed",
        "user=user-1",
        "user=@me",
        "user=unknown",
        "tenant=default",
        "tenant=none",
        "name=job-1",
        "label=kind",
        "label=kind%3D1",
        "gpus_min=2",
        "gpus_min=2&gpus_max=3",
        "from=1",
        "to=1",
        "q=b-2",
        "q=user-1",
        "q=default",
        "q=3",
        "node=node-0",
        "user=user-1&state=completed",
        "label=kind&user=user-0&gpus_max=3",
        "name=job-2&state=failed&q=job",
    ];
    let sorts = [
        "-submitted",
        "submitted",
        "-gpus",
        "gpus",
        "gpu_seconds",
        "-gpu_seconds",
        "wait",
        "-name",
        "name",
        "user",
    ];
    let all = filters.iter().map(|filter| format!("{filter}&sort=-submitted"));
    let sorted = sorts.iter().map(|sort| format!("sort={sort}"));
    let both = sorts
        .iter()
        .map(|sort| format!("gpus_min=2&state=finished&sort={sort}"));
    all.chain(sorted).chain(both).collect()
}

/// Returns all pages of a list, with the total of each.
fn pages(server: &Server, token: &str, query: &str) -> Vec<(Vec<Value>, u64)> {
    let mut pages = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = server
            .get(token, &format!("/jobs?limit=4&{query}{cursor}"))
            .json();
        let jobs = page["jobs"]
            .as_array()
            .unwrap_or_else(|| panic!("{query}: {page}"));
        pages.push((jobs.clone(), page["total"].as_u64().unwrap()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return pages,
        }
    }
}

/// Runs jobs to their ends.
fn create(server: &Server, tokens: &[String], jobs: &[Past]) {
    for past in jobs {
        let mut job = json!({
            "name": format!("job-{}", past.name),
            "gpus": past.gpus,
            "private": past.private,
            "hold": past.end == 2 || past.end == 4,
            "labels": past.label.map_or(json!({}), |label| json!({"kind": label.to_string()})),
        });
        let last = server.handle.read(|state| state.next_job() - 1);
        let is_dependent = past.end == 3
            && server
                .handle
                .read(|state| state.job(last).is_some_and(|j| j.state.has_ended()));
        if is_dependent {
            job["after"] = json!([{"job": last, "when": "not-ok"}]);
        }
        let id = server.submit(&tokens[usize::from(past.user)], job);
        match past.end {
            2 => server.handle.cancel(id, Actor::user("admin")).wait().unwrap(),
            0 | 1 | 3 => end(server, id, i32::from(past.end == 1)),
            _ => {}
        }
    }
}

/// Starts and ends a job, if it has not ended yet.
fn end(server: &Server, id: u64, exit_code: i32) {
    let attempt = server.handle.read(|state| {
        let job = state.job(id).filter(|job| job.state.holds_gpus());
        job.and_then(|job| job.attempt().map(|a| a.id))
    });
    let Some(attempt) = attempt else { return };
    let handle = &server.handle;
    let started = handle.task_started(id, attempt, NodeId(0), String::new(), Vec::new());
    started.wait().unwrap();
    let end = TaskEnd {
        exit_code,
        ..TaskEnd::default()
    };
    handle.task_ended(id, attempt, NodeId(0), end).wait().unwrap();
}

/// Everything that users see, which must not depend on where jobs are.
fn views(server: &Server, tokens: &[String]) -> Vec<(String, Value)> {
    let mut views = Vec::new();
    let jobs = server.handle.read(|state| state.next_job());
    for token in tokens {
        for query in queries() {
            views.push((query.clone(), json!(pages(server, token, &query))));
        }
        for id in 1..jobs {
            for path in [
                format!("/jobs/{id}"),
                format!("/jobs/{id}/progress"),
                format!("/jobs/{id}/gpus"),
            ] {
                let answer = server.get(token, &path);
                views.push((format!("{path} {}", answer.status), answer.json()));
            }
        }
        views.push(("/usage".to_owned(), server.get(token, "/usage").json()));
        views.push((
            "/events".to_owned(),
            server.get(token, "/events?since=0").text.into(),
        ));
    }
    views
}

fn check(jobs: &[Past]) {
    let server = Server::start(1);
    let mut tokens: Vec<String> = (0..3).map(|i| server.user(&format!("user-{i}"), &[])).collect();
    create(&server, &tokens, jobs);
    tokens.push(server.admin.clone());
    // The times of jobs that have not ended depend on the time of the last fact, which a restart moves.
    let server = server.restart();
    let expected = views(&server, &tokens);
    let in_memory = server.handle.read(|state| state.departed_count());
    assert_eq!(in_memory, 0);
    let server = server.restart();
    let ended = server.handle.read(|state| state.departed_count());
    let can_leave = jobs.iter().any(|job| job.end != 4);
    assert!(ended > 0 || !can_leave, "{jobs:?}");
    for ((path, now), (_, before)) in views(&server, &tokens).iter().zip(&expected) {
        assert_eq!(now, before, "{path}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn what_users_see_of_a_job_does_not_depend_on_whether_it_is_in_memory(jobs in histories()) {
        check(&jobs);
    }
}
