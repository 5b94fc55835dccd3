//! All routes of the API, with their descriptions.

use axum::Json;
use axum::routing::{delete, get, patch, post, put};
use serde_json::Value;

use crate::accounts::{self, AuditPage, Notify};
use crate::openapi::{ApiRouter, RouteDoc};
use crate::query::DryRunQuery;
use crate::views::{
    AccountChange, AccountView, ActionResult, BulkAction, ClusterView, CreatedToken, CurrentUser,
    DrainRequest, ExplanationView, FileCheck, GpuUtilization, JobPage, JobView, LogMatch, NewPassword,
    NewPriority, NewToken, NewUser, NewUserSecrets, NodeUtilization, NodeView, NotifyTest, Operation,
    PolicyView, ProfileView, ProgressPoint, QueueEntry, RenderedTemplate, ServerInfo, SessionView, SignIn,
    SignInOptions, Submission, SubmitResponse, TemplateValues, TemplateView, TokenView, UsageRow, VcDiff,
    VcEdit, VcFile, VcList,
};
use crate::{
    cluster, events, explain, gpu_utilization, job_list, jobs, log_search, logs, nodes, oidc, profiles,
    submit, templates, usage, utilization, virtual_clusters,
};

/// Returns the OpenAPI 3.1 document of the API.
pub fn openapi() -> Value {
    v1().finish().1
}

async fn document() -> Json<Value> {
    Json(openapi())
}

/// Returns all routes of version 1.
pub(crate) fn v1() -> ApiRouter {
    let routes: [fn(ApiRouter) -> ApiRouter; 8] = [
        session_routes,
        account_routes,
        job_routes,
        log_routes,
        queue_routes,
        cluster_routes,
        virtual_cluster_routes,
        admin_routes,
    ];
    routes
        .into_iter()
        .fold(ApiRouter::new(), |router, add| add(router))
}

fn session_routes(router: ApiRouter) -> ApiRouter {
    router
        .add(
            "/info",
            get(cluster::info),
            RouteDoc::get("info", "Describe this server")
                .public()
                .response::<ServerInfo>(),
        )
        .add(
            "/openapi.json",
            get(document),
            RouteDoc::get("openapi", "Return this document")
                .public()
                .response::<Value>(),
        )
        .add(
            "/session",
            post(accounts::sign_in),
            RouteDoc::post("signIn", "Sign in with a password; sets a cookie")
                .public()
                .body::<SignIn>()
                .response::<SessionView>(),
        )
        .add(
            "/session",
            delete(accounts::sign_out),
            RouteDoc::delete("signOut", "Sign out").status(204),
        )
        .add(
            "/session/options",
            get(oidc::options),
            RouteDoc::get("signInOptions", "List the ways to sign in")
                .public()
                .response::<SignInOptions>(),
        )
        .add(
            "/session/oidc",
            get(oidc::begin),
            RouteDoc::get(
                "signInOidc",
                "Redirect the browser to the OpenID Connect provider",
            )
            .public()
            .query::<oidc::SignInQuery>()
            .status(303),
        )
        .add(
            "/session/oidc/callback",
            get(oidc::callback),
            RouteDoc::get(
                "oidcCallback",
                "Handle the redirect from the OpenID Connect provider; sets a cookie",
            )
            .public()
            .query::<oidc::CallbackQuery>()
            .status(303),
        )
}

fn account_routes(router: ApiRouter) -> ApiRouter {
    router
        .add(
            "/me",
            get(accounts::me),
            RouteDoc::get("me", "Return the calling user").response::<CurrentUser>(),
        )
        .add(
            "/me/password",
            put(accounts::set_password),
            RouteDoc::put("setPassword", "Change one's own password")
                .body::<NewPassword>()
                .status(204),
        )
        .add(
            "/me/notify",
            get(accounts::show_notify),
            RouteDoc::get("notify", "Return one's own notification settings").response::<Notify>(),
        )
        .add(
            "/me/notify",
            put(accounts::set_notify),
            RouteDoc::put("setNotify", "Change one's own notification settings")
                .body::<Notify>()
                .response::<Notify>(),
        )
        .add(
            "/me/notify/test",
            post(accounts::test_notify),
            RouteDoc::post("testNotify", "Send a test notification over each channel")
                .response::<NotifyTest>(),
        )
        .add(
            "/me/tokens",
            get(accounts::list_tokens),
            RouteDoc::get("tokens", "List one's own tokens").response::<Vec<TokenView>>(),
        )
        .add(
            "/me/tokens",
            post(accounts::add_token),
            RouteDoc::post("addToken", "Create a token, which is shown once")
                .body::<NewToken>()
                .status(201)
                .response::<CreatedToken>(),
        )
        .add(
            "/me/tokens/{id}",
            delete(accounts::remove_token),
            RouteDoc::delete("removeToken", "Remove a token").status(204),
        )
}

fn job_routes(router: ApiRouter) -> ApiRouter {
    router
        .add(
            "/jobs",
            get(job_list::list),
            RouteDoc::get("jobs", "List jobs")
                .query::<job_list::JobFilter>()
                .response::<JobPage>(),
        )
        .add(
            "/jobs",
            post(submit::submit),
            RouteDoc::post(
                "submit",
                "Submit a job, as JSON or as a job file; with the header Idempotency-Key, repeating the request is safe",
            )
            .query::<DryRunQuery>()
            .body_as::<Submission>(submit::SUBMISSION_TYPES)
            .status(201)
            .response::<SubmitResponse>(),
        )
        .add(
            "/jobs/check",
            post(submit::check),
            RouteDoc::post("checkFile", "Check a job file without submitting it")
                .body_as::<String>(submit::FILE_TYPES)
                .response::<FileCheck>(),
        )
        .add(
            "/jobs/actions",
            post(jobs::act_on_many),
            RouteDoc::post("bulkAction", "Stop, hold or release several jobs")
                .body::<BulkAction>()
                .response::<Vec<ActionResult>>(),
        )
        .add(
            "/jobs/{id}",
            get(jobs::show),
            RouteDoc::get("job", "Return a job with its attempts").response::<JobView>(),
        )
        .add(
            "/jobs/{id}/priority",
            post(jobs::prioritize),
            RouteDoc::post("prioritize", "Change the priority of a job")
                .body::<NewPriority>()
                .response::<JobView>(),
        )
        .add(
            "/jobs/{id}/{action}",
            post(jobs::act),
            RouteDoc::post("jobAction", "Stop, hold or release a job").response::<JobView>(),
        )
        .add(
            "/templates",
            get(templates::list),
            RouteDoc::get("templates", "List templates: job files with parameters")
                .response::<Vec<TemplateView>>(),
        )
        .add(
            "/templates/{name}/render",
            post(templates::render),
            RouteDoc::post("renderTemplate", "Return the job file of a template with values")
                .body::<TemplateValues>()
                .response::<RenderedTemplate>(),
        )
}

fn log_routes(router: ApiRouter) -> ApiRouter {
    router
        .add(
            "/jobs/{id}/logs",
            get(logs::read),
            RouteDoc::get("logs", "Read the log of a job, as JSON lines")
                .query::<logs::LogQuery>()
                .streams("application/jsonl"),
        )
        .add(
            "/jobs/{id}/logs/search",
            get(log_search::search),
            RouteDoc::get("searchLogs", "Search the log of a job on its nodes")
                .query::<log_search::LogSearchQuery>()
                .response::<Vec<LogMatch>>(),
        )
        .add(
            "/jobs/{id}/progress",
            get(jobs::progress),
            RouteDoc::get("progress", "Return the progress of a job over time")
                .response::<Vec<ProgressPoint>>(),
        )
        .add(
            "/jobs/{id}/gpus",
            get(gpu_utilization::show),
            RouteDoc::get("gpuUtilization", "Return the GPU utilization of a job")
                .response::<GpuUtilization>(),
        )
}

fn queue_routes(router: ApiRouter) -> ApiRouter {
    router
        .add(
            "/jobs/{id}/explain",
            get(explain::explain),
            RouteDoc::get("explain", "Explain why a job is pending").response::<ExplanationView>(),
        )
        .add(
            "/queue",
            get(explain::queue),
            RouteDoc::get("queue", "List queued jobs in scheduling order").response::<Vec<QueueEntry>>(),
        )
        .add(
            "/usage",
            get(usage::usage),
            RouteDoc::get("usage", "Return GPU time by day, user and virtual cluster")
                .query::<usage::UsageQuery>()
                .response::<Vec<UsageRow>>(),
        )
        .add(
            "/utilization",
            get(utilization::utilization),
            RouteDoc::get(
                "utilization",
                "Return the utilization of nodes in intervals of 30 seconds",
            )
            .query::<utilization::UtilizationQuery>()
            .response::<Vec<NodeUtilization>>(),
        )
        .add(
            "/events",
            get(events::stream),
            RouteDoc::get("events", "Stream events, as server-sent events")
                .query::<events::EventQuery>()
                .streams("text/event-stream"),
        )
}

fn cluster_routes(router: ApiRouter) -> ApiRouter {
    router
        .add(
            "/cluster",
            get(cluster::cluster),
            RouteDoc::get("cluster", "Return an overview of the cluster").response::<ClusterView>(),
        )
        .add(
            "/policies",
            get(cluster::policies),
            RouteDoc::get("policies", "List policies").response::<Vec<PolicyView>>(),
        )
        .add(
            "/profiles",
            get(profiles::list),
            RouteDoc::get(
                "profiles",
                "List the profiles of models that were measured on this cluster",
            )
            .response::<Vec<ProfileView>>(),
        )
        .add(
            "/profiles/{model}",
            get(profiles::show),
            RouteDoc::get("profile", "Return the profile of a model").response::<ProfileView>(),
        )
        .add(
            "/profiles/{model}",
            delete(profiles::forget),
            RouteDoc::delete("forgetProfile", "Delete the profile of a model"),
        )
        .add(
            "/nodes",
            get(nodes::list),
            RouteDoc::get("nodes", "List nodes").response::<Vec<NodeView>>(),
        )
        .add(
            "/nodes/{name}/{action}",
            post(nodes::act),
            RouteDoc::post("nodeAction", "Drain or resume a node, or start or stop MPS on it")
                .body::<DrainRequest>()
                .response::<NodeView>(),
        )
}

fn virtual_cluster_routes(router: ApiRouter) -> ApiRouter {
    router
        .add(
            "/vcs",
            get(virtual_clusters::list),
            RouteDoc::get("vcs", "List virtual clusters").response::<VcList>(),
        )
        .add(
            "/vcs",
            put(virtual_clusters::set_all),
            RouteDoc::put("setVcs", "Change all virtual clusters at once")
                .query::<DryRunQuery>()
                .body::<VcFile>()
                .response::<VcDiff>(),
        )
        .add(
            "/vcs/{name}",
            put(virtual_clusters::set),
            RouteDoc::put("setVc", "Create or change a virtual cluster")
                .query::<DryRunQuery>()
                .body::<VcEdit>()
                .response::<VcDiff>(),
        )
        .add(
            "/vcs/{name}",
            delete(virtual_clusters::remove),
            RouteDoc::delete("removeVc", "Remove a virtual cluster")
                .query::<DryRunQuery>()
                .response::<VcDiff>(),
        )
}

fn admin_routes(router: ApiRouter) -> ApiRouter {
    router
        .add(
            "/operate",
            post(cluster::operate),
            RouteDoc::post(
                "operate",
                "Change the policy or the clock, or pause and resume scheduling",
            )
            .body::<Operation>()
            .response::<ClusterView>(),
        )
        .add(
            "/users",
            get(accounts::list),
            RouteDoc::get("users", "List users").response::<Vec<AccountView>>(),
        )
        .add(
            "/users",
            post(accounts::add),
            RouteDoc::post("addUser", "Add a user; its secrets are shown once")
                .body::<NewUser>()
                .status(201)
                .response::<NewUserSecrets>(),
        )
        .add(
            "/users/{name}",
            patch(accounts::change),
            RouteDoc::patch("changeUser", "Change a user")
                .body::<AccountChange>()
                .response::<AccountView>(),
        )
        .add(
            "/users/{name}",
            delete(accounts::remove),
            RouteDoc::delete("removeUser", "Remove a user").status(204),
        )
        .add(
            "/audit",
            get(accounts::show_audit),
            RouteDoc::get("audit", "Return the audit log")
                .query::<accounts::AuditQuery>()
                .response::<AuditPage>(),
        )
}
