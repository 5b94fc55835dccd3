//! Ended jobs that are only in the history, as requests of OpenPAI clients need them.

use std::collections::BTreeMap;

use dovetail_cluster::state::{ClusterState, JobRecord};
use dovetail_cluster::{Handle, JobId};
use dovetail_history::{JobQuery, KnownJobs, Readers, Viewer};
use dovetail_jobfile::OPENPAI_LABEL;

use crate::accounts::User;
use crate::job_list::visible_tenants;
use crate::{Api, Problem};

/// Jobs of the history that a request may refer to, in the order of their numbers.
#[derive(Default)]
pub(super) struct PastRecords(Vec<JobRecord>);

/// Number of jobs of the history that a list considers, newest first.
const MAX_PAST: usize = 5_000;

impl PastRecords {
    /// Returns the jobs.
    pub(super) fn jobs(&self) -> impl DoubleEndedIterator<Item = &JobRecord> {
        self.0.iter()
    }

    /// Reads the newest jobs of the history, of one user and one virtual cluster if they are given.
    pub(super) async fn newest(
        api: &Api,
        user: &User,
        (owner, tenant): (Option<String>, Option<String>),
    ) -> Result<Self, Problem> {
        let (handle, user) = (api.handle.clone(), user.clone());
        on_thread(move || Self::read_newest(&handle, &user, owner, tenant)).await
    }

    /// Reads the jobs of the history that may have the name `user~name`, with the other members of their arrays.
    pub(super) async fn named(api: &Api, user: &User, full: &str) -> Result<Self, Problem> {
        let (handle, user, full) = (api.handle.clone(), user.clone(), full.to_owned());
        on_thread(move || Self::read_named(&handle, &user, &full)).await
    }

    fn read_newest(
        handle: &Handle,
        user: &User,
        owner: Option<String>,
        tenant: Option<String>,
    ) -> Result<Self, Problem> {
        let Some((history, known)) = past(handle) else {
            return Ok(Self::default());
        };
        let query = JobQuery {
            user: owner,
            tenant,
            ..visible(handle, user)?
        };
        let found = history.list(&query, &known).map_err(Problem::history)?;
        Self::read(handle, found.jobs.into_iter().map(|(_, id)| id).collect())
    }

    fn read_named(handle: &Handle, user: &User, full: &str) -> Result<Self, Problem> {
        let Some((history, known)) = past(handle) else {
            return Ok(Self::default());
        };
        let Some((owner, name)) = full.split_once('~') else {
            return Ok(Self::default());
        };
        let query = JobQuery {
            user: Some(owner.to_owned()),
            label: Some((OPENPAI_LABEL.to_owned(), Some(name.to_owned()))),
            ..visible(handle, user)?
        };
        let found = history.list(&query, &known).map_err(Problem::history)?;
        let mut ids: Vec<JobId> = found.jobs.into_iter().map(|(_, id)| id).collect();
        let number = name.rsplit_once('_').and_then(|(_, id)| id.parse().ok());
        ids.extend(number.filter(|id| !known.has(*id)));
        Self::read(handle, ids)
    }

    /// Reads jobs, and the members of the arrays that begin with them.
    fn read(handle: &Handle, mut ids: Vec<JobId>) -> Result<Self, Problem> {
        ids.sort_unstable();
        let jobs = handle.past_jobs(&ids).map_err(Problem::history)?;
        let mut all: BTreeMap<JobId, JobRecord> = BTreeMap::new();
        for job in jobs {
            let array = job
                .request
                .array
                .filter(|_| !job.request.gang)
                .map(|part| part.array);
            let known = all.len();
            if array == Some(job.id) && known < MAX_PAST {
                all.extend(members(handle, job.id)?);
            }
            all.insert(job.id, job);
        }
        Ok(Self(all.into_values().collect()))
    }
}

/// Returns the members of an array that are in the history.
fn members(handle: &Handle, array: JobId) -> Result<Vec<(JobId, JobRecord)>, Problem> {
    let ids: Vec<JobId> = (array..array + MAX_PAST as u64).collect();
    let jobs = handle.past_jobs(&ids).map_err(Problem::history)?;
    let is_member = |job: &JobRecord| job.request.array.is_some_and(|part| part.array == array);
    Ok(jobs
        .into_iter()
        .filter(is_member)
        .map(|job| (job.id, job))
        .collect())
}

/// Returns the history and what is not only there; none if nothing is.
fn past(handle: &Handle) -> Option<(&Readers, KnownJobs)> {
    let known = handle.read(ClusterState::known_jobs);
    handle
        .history()
        .filter(|_| known.from > 0)
        .map(|history| (history, known))
}

/// Returns a query for the newest jobs that the user may see.
fn visible(handle: &Handle, user: &User) -> Result<JobQuery, Problem> {
    let tenants = visible_tenants(handle, user)?;
    Ok(JobQuery {
        viewer: (!user.admin).then(|| Viewer {
            user: user.name.clone(),
            tenants,
        }),
        ..JobQuery::newest(MAX_PAST)
    })
}

/// Runs a read of the history on a thread of its own.
async fn on_thread<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let read = tokio::task::spawn_blocking(read).await;
    read.map_err(|e| Problem::unavailable(e.to_string()))?
}
