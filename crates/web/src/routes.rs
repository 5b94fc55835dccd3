//! Every path of the API, with what it says.

use axum::Json;
use axum::routing::{delete, get, patch, post, put};
use serde_json::Value;

use crate::pages::{Pages, Says};
use crate::people::{self, AuditPage, Notify};
use crate::views::{
    AccountChange, AccountView, ActionDone, Actions, Because, ClusterEdit, ClusterView, ClustersFile,
    ClustersView, Explained, FileCheck, Filled, Filling, Found, GpuUse, Info, JobPage, JobView, Me,
    NewPassword, NewPriority, NewToken, NewUser, NewUserSecrets, NodeView, NotifyTried, Operation,
    PolicyView, ProgressPoint, QueueEntry, SignIn, SignInOptions, SignedIn, Submission, Submitted,
    TemplateView, TokenMade, TokenView, UsageRow, VcDiff,
};
use crate::{
    clusters, events, explain, gpu_use, job_list, jobs, log_search, logs, nodes, oidc, operate, templates,
    usage,
};

/// The document that describes the API (OpenAPI 3.1).
pub fn openapi() -> Value {
    v1().finish().1
}

async fn document() -> Json<Value> {
    Json(openapi())
}

/// All of them.
pub(crate) fn v1() -> Pages {
    let pages = Pages::new();
    administration(cluster(jobs(account(pages))))
}

fn account(pages: Pages) -> Pages {
    pages
        .add(
            "/info",
            get(operate::info),
            Says::get("info", "What this server is").open().answers::<Info>(),
        )
        .add(
            "/openapi.json",
            get(document),
            Says::get("openapi", "This document").open().answers::<Value>(),
        )
        .add(
            "/session",
            post(people::sign_in),
            Says::post("signIn", "Sign in; sets a cookie")
                .open()
                .body::<SignIn>()
                .answers::<SignedIn>(),
        )
        .add(
            "/session",
            delete(people::sign_out),
            Says::delete("signOut", "Sign out").status(204),
        )
        .add(
            "/session/options",
            get(oidc::options),
            Says::get("signInOptions", "Ways to sign in")
                .open()
                .answers::<SignInOptions>(),
        )
        .add(
            "/session/oidc",
            get(oidc::begin),
            Says::get(
                "signInElsewhere",
                "Send the browser to where the organisation signs people in",
            )
            .open()
            .query::<oidc::Begin>()
            .status(303),
        )
        .add(
            "/session/oidc/callback",
            get(oidc::callback),
            Says::get(
                "signedInElsewhere",
                "Where the browser comes back to; sets a cookie",
            )
            .open()
            .query::<oidc::Back>()
            .status(303),
        )
        .add(
            "/me",
            get(people::me),
            Says::get("me", "Who asks").answers::<Me>(),
        )
        .add(
            "/me/password",
            put(people::set_password),
            Says::put("setPassword", "Change one's own password")
                .body::<NewPassword>()
                .status(204),
        )
        .add(
            "/me/notify",
            get(people::show_notify),
            Says::get("notify", "When one is told of one's jobs").answers::<Notify>(),
        )
        .add(
            "/me/notify",
            put(people::set_notify),
            Says::put("setNotify", "Say when to be told")
                .body::<Notify>()
                .answers::<Notify>(),
        )
        .add(
            "/me/notify/test",
            post(people::test_notify),
            Says::post("testNotify", "Try each way one is told, now").answers::<NotifyTried>(),
        )
        .add(
            "/me/tokens",
            get(people::list_tokens),
            Says::get("tokens", "One's own tokens").answers::<Vec<TokenView>>(),
        )
        .add(
            "/me/tokens",
            post(people::add_token),
            Says::post("addToken", "Make a token; it is shown once")
                .body::<NewToken>()
                .status(201)
                .answers::<TokenMade>(),
        )
        .add(
            "/me/tokens/{id}",
            delete(people::remove_token),
            Says::delete("removeToken", "Take a token back").status(204),
        )
}

fn jobs(pages: Pages) -> Pages {
    pages
        .add(
            "/jobs",
            get(job_list::list),
            Says::get("jobs", "List jobs").query::<job_list::Filter>().answers::<JobPage>(),
        )
        .add(
            "/jobs",
            post(jobs::submit),
            Says::post("submit", "Send a job, as JSON or as a job file; the header Idempotency-Key makes sending it again safe")
                .query::<jobs::HowSent>()
                .body_or_text::<Submission>(jobs::KINDS)
                .status(201)
                .answers::<Submitted>(),
        )
        .add(
            "/jobs/check",
            post(jobs::check),
            Says::post("checkFile", "Read a job file without sending it")
                .body_or_text::<String>(jobs::TEXTS)
                .answers::<FileCheck>(),
        )
        .add(
            "/jobs/actions",
            post(jobs::act_on_many),
            Says::post("actOnMany", "Stop, hold or release several jobs").body::<Actions>().answers::<Vec<ActionDone>>(),
        )
        .add("/jobs/{id}", get(jobs::show), Says::get("job", "A job with its launches").answers::<JobView>())
        .add("/jobs/{id}/explain", get(explain::explain), Says::get("explain", "Why the job waits").answers::<Explained>())
        .add(
            "/jobs/{id}/logs",
            get(logs::read),
            Says::get("logs", "What the job printed, as JSON lines")
                .query::<logs::Wanted>()
                .streams("application/jsonl"),
        )
        .add(
            "/jobs/{id}/logs/search",
            get(log_search::search),
            Says::get("searchLogs", "Look for words in what the job printed, on its nodes")
                .query::<log_search::Wanted>()
                .answers::<Vec<Found>>(),
        )
        .add(
            "/jobs/{id}/progress",
            get(jobs::progress),
            Says::get("progress", "How far the job was when").answers::<Vec<ProgressPoint>>(),
        )
        .add(
            "/jobs/{id}/gpus",
            get(gpu_use::show),
            Says::get("gpuUse", "How busy the GPUs of the job are").answers::<GpuUse>(),
        )
        .add(
            "/jobs/{id}/priority",
            post(jobs::prioritize),
            Says::post("prioritize", "Give a job that waits another priority").body::<NewPriority>().answers::<JobView>(),
        )
        .add(
            "/jobs/{id}/{action}",
            post(jobs::act),
            Says::post("act", "Do something to a job: stop, hold or release").answers::<JobView>(),
        )
        .add("/templates", get(templates::list), Says::get("templates", "Job files with parameters").answers::<Vec<TemplateView>>())
        .add(
            "/templates/{name}/render",
            post(templates::render),
            Says::post("fillTemplate", "Fill a template in").body::<Filling>().answers::<Filled>(),
        )
        .add("/queue", get(explain::queue), Says::get("queue", "The line, in order").answers::<Vec<QueueEntry>>())
        .add("/usage", get(usage::usage), Says::get("usage", "GPU time by day, user and virtual cluster").query::<usage::Days>().answers::<Vec<UsageRow>>())
        .add(
            "/events",
            get(events::stream),
            Says::get("events", "What happens, as server-sent events").query::<events::Wanted>().streams("text/event-stream"),
        )
}

fn cluster(pages: Pages) -> Pages {
    pages
        .add(
            "/cluster",
            get(operate::cluster),
            Says::get("cluster", "The cluster at a glance").answers::<ClusterView>(),
        )
        .add(
            "/policies",
            get(operate::policies),
            Says::get("policies", "Policies there are").answers::<Vec<PolicyView>>(),
        )
        .add(
            "/nodes",
            get(nodes::list),
            Says::get("nodes", "All nodes").answers::<Vec<NodeView>>(),
        )
        .add(
            "/nodes/{name}/{action}",
            post(nodes::act),
            Says::post("actOnNode", "Drain or resume a node")
                .body::<Because>()
                .answers::<NodeView>(),
        )
        .add(
            "/vcs",
            get(clusters::list),
            Says::get("vcs", "All virtual clusters").answers::<ClustersView>(),
        )
        .add(
            "/vcs",
            put(clusters::set_all),
            Says::put("setVcs", "Change all virtual clusters at once")
                .query::<clusters::HowChanged>()
                .body::<ClustersFile>()
                .answers::<VcDiff>(),
        )
        .add(
            "/vcs/{name}",
            put(clusters::set),
            Says::put("setVc", "Make or change a virtual cluster")
                .query::<clusters::HowChanged>()
                .body::<ClusterEdit>()
                .answers::<VcDiff>(),
        )
        .add(
            "/vcs/{name}",
            delete(clusters::remove),
            Says::delete("removeVc", "Remove a virtual cluster")
                .query::<clusters::HowChanged>()
                .answers::<VcDiff>(),
        )
}

fn administration(pages: Pages) -> Pages {
    pages
        .add(
            "/operate",
            post(operate::operate),
            Says::post("operate", "Change how the scheduler works")
                .body::<Operation>()
                .answers::<ClusterView>(),
        )
        .add(
            "/users",
            get(people::list),
            Says::get("users", "All users").answers::<Vec<AccountView>>(),
        )
        .add(
            "/users",
            post(people::add),
            Says::post("addUser", "Add a user; its secrets are shown once")
                .body::<NewUser>()
                .status(201)
                .answers::<NewUserSecrets>(),
        )
        .add(
            "/users/{name}",
            patch(people::change),
            Says::patch("changeUser", "Change a user")
                .body::<AccountChange>()
                .answers::<AccountView>(),
        )
        .add(
            "/users/{name}",
            delete(people::remove),
            Says::delete("removeUser", "Remove a user").status(204),
        )
        .add(
            "/audit",
            get(people::show_audit),
            Says::get("audit", "Who changed what")
                .query::<people::AuditWanted>()
                .answers::<AuditPage>(),
        )
}
