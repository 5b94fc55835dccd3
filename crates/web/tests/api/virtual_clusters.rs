//! Changes of virtual clusters while jobs run.

use serde_json::{Value, json};

use crate::server::Server;

#[test]
fn a_change_is_previewed_and_applied() {
    let server = Server::start(2);
    let admin = |method: &str, path: &str, body: Value| server.call(&server.admin, method, path, &body);
    let created = admin("PUT", "/vcs/vision", json!({"guaranteed_gpus": 4}));
    assert_eq!(created.status, 200, "{created:?}");
    let vcs = server.get(&server.admin, "/vcs").json();
    let vc = |vcs: &Value, name: &str| {
        let all = vcs["vcs"].as_array().unwrap().clone();
        all.into_iter().find(|vc| vc["name"] == name).unwrap()
    };
    assert_eq!((&vcs["mode"], &vcs["gpus"]), (&json!("quota"), &json!(8)));
    assert_eq!(
        vc(&vcs, "default")["guaranteed_gpus"],
        4,
        "default has the remaining GPUs: {vcs}"
    );
    let first = server.submit(&server.admin, json!({"tenant": "vision", "gpus": 4}));
    let second = server.submit(&server.admin, json!({"tenant": "vision", "gpus": 2}));
    let state = |job: u64| server.get(&server.admin, &format!("/jobs/{job}")).json()["state"].clone();
    assert_eq!(
        (state(first), state(second)),
        (json!("starting"), json!("queued"))
    );
    let explanation = server
        .get(&server.admin, &format!("/jobs/{second}/explain"))
        .json();
    assert_eq!(
        explanation["blockers"][0]["code"], "tenant-quota",
        "{explanation}"
    );
    let alternatives: Vec<&str> = explanation["alternatives"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| i["change"].as_str().unwrap())
        .collect();
    assert_eq!(alternatives, ["tenant", "priority"], "{explanation}");
    let raise = json!({"guaranteed_gpus": 6});
    let preview = admin("PUT", "/vcs/vision?dry_run=true", raise.clone()).json();
    assert_eq!(preview["starts"], json!([second]), "{preview}");
    assert_eq!(
        preview["changes"],
        json!([{"vc": "vision", "field": "guaranteed_gpus", "before": 4, "after": 6}])
    );
    assert_eq!(state(second), "queued", "nothing was changed");
    assert_eq!(admin("PUT", "/vcs/vision", raise).status, 200);
    assert_eq!(state(second), "starting");
    let now = server.get(&server.admin, "/vcs").json();
    assert_eq!(
        (
            &vc(&now, "vision")["used_gpus"],
            &vc(&now, "vision")["running_jobs"]
        ),
        (&json!(6), &json!(2))
    );
    let unknown = admin(
        "POST",
        "/jobs",
        json!({"job": {"command": ["true"], "tenant": "nowhere"}}),
    );
    assert!(
        unknown.status == 422 && unknown.text.contains("expected default, vision"),
        "{unknown:?}"
    );
    let too_wide = admin(
        "POST",
        "/jobs",
        json!({"job": {"command": ["true"], "tenant": "vision", "gpus": 7}}),
    );
    assert!(
        too_wide.status == 422 && too_wide.text.contains("guaranteed 6"),
        "{too_wide:?}"
    );
    assert_eq!(admin("DELETE", "/vcs/nowhere", Value::Null).status, 404);
    let removed = admin("DELETE", "/vcs/vision?dry_run=true", Value::Null).json();
    assert!(
        removed["effects"].to_string().contains("become borrowers"),
        "{removed}"
    );
}

const CELLS: &str = "
physicalCluster:
  cellTypes:
    NODE: {childCellType: virtual, childCellNumber: 4, isNodeLevel: true}
    POOL: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
  - cellType: POOL
    cellChildren: [{cellAddress: node-0}, {cellAddress: node-1}]
virtualClusters:
  a: {virtualCells: [{cellType: POOL.NODE, cellNumber: 1}]}
  b: {virtualCells: [{cellType: POOL.NODE, cellNumber: 1}]}
";

#[test]
fn cells_are_set_from_a_hived_configuration_and_shown_with_their_nodes() {
    let server = Server::start(2);
    let admin = |method: &str, path: &str, body: Value| server.call(&server.admin, method, path, &body);
    let set = admin("PUT", "/vcs", json!({"mode": "cells", "cells": CELLS}));
    assert_eq!(set.status, 200, "{set:?}");
    let job = server.submit(&server.admin, json!({"tenant": "a", "gpus": 2}));
    let vcs = server.get(&server.admin, "/vcs").json();
    let cell = &vcs["vcs"][0]["cells"][0];
    assert_eq!(
        (&cell["gpus"], &cell["used_gpus"], &cell["type"]),
        (&json!(4), &json!(2), &json!("NODE")),
        "{vcs}"
    );
    let jobs: Vec<&Value> = cell["children"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|c| c["job"] == job)
        .collect();
    assert_eq!(jobs.len(), 2, "{vcs}");
    let wrong = admin(
        "PUT",
        "/vcs",
        json!({"mode": "cells", "cells": CELLS.replace("cellNumber: 1", "cellNumber: 2")}),
    );
    assert!(wrong.status == 422 && wrong.text.contains("cells:"), "{wrong:?}");
    let torn = admin(
        "PUT",
        "/vcs",
        json!({"mode": "cells", "cells": "physicalCluster: ["}),
    );
    assert_eq!(torn.status, 422, "{torn:?}");
    let own = admin("PUT", "/vcs/a", json!({"guaranteed_gpus": 3}));
    assert_eq!(own.status, 409, "{own:?}");
}

/// The two virtual clusters of Lab 6, whose cell types have other names than the GPU types of the driver.
const TWO_KINDS: &str = "
physicalCluster:
  cellTypes:
    C-NODE: {childCellType: GPU-C, childCellNumber: 4, isNodeLevel: true}
    D-NODE: {childCellType: GPU-D, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - {cellType: C-NODE, cellAddress: node-0}
  - {cellType: D-NODE, cellAddress: node-1}
virtualClusters:
  default: {virtualCells: [{cellType: C-NODE, cellNumber: 1}]}
  b: {virtualCells: [{cellType: D-NODE, cellNumber: 1}]}
";

#[test]
fn nodes_of_cells_are_found_by_name_whatever_their_gpu_type() {
    let server = Server::start(2);
    let set = server.call(
        &server.admin,
        "PUT",
        "/vcs",
        &json!({"mode": "cells", "cells": TWO_KINDS}),
    );
    assert_eq!(set.status, 200, "{set:?}");
    let job = |body: Value| {
        let id = server.submit(&server.admin, body);
        server.get(&server.admin, &format!("/jobs/{id}")).json()
    };
    let node = |job: &Value| job["placement"][0]["node"].as_str().map(str::to_owned);
    let own = job(json!({"tenant": "b", "gpus": 4}));
    assert_eq!(node(&own).as_deref(), Some("node-1"), "{own}");
    let waits = job(json!({"tenant": "b", "gpus": 1}));
    assert_eq!(
        (node(&waits), &waits["state"]),
        (None, &json!("queued")),
        "{waits}"
    );
    let borrows = job(json!({"tenant": "b", "gpus": 1, "priority": -1}));
    assert_eq!(node(&borrows).as_deref(), Some("node-0"), "{borrows}");
}
