//! Jobs in memory or in the history: ended jobs leave memory, and requests find them all the same.

use dovetail_cluster::state::{ClusterState, JobRecord};
use dovetail_cluster::{Handle, JobId};
use dovetail_history::HistoryError;

use crate::accounts::User;
use crate::{Api, Problem};

impl Api {
    /// Reads the history on a thread of its own.
    pub(crate) async fn read_history<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Handle) -> Result<T, HistoryError> + Send + 'static,
    ) -> Result<T, Problem> {
        let handle = self.handle.clone();
        let read = tokio::task::spawn_blocking(move || read(&handle)).await;
        read.map_err(|e| Problem::unavailable(e.to_string()))?
            .map_err(Problem::history)
    }

    /// Returns a job that is only in the history.
    pub(crate) async fn past_job(&self, id: JobId) -> Result<Option<JobRecord>, Problem> {
        match self.handle.read(|state| state.has_departed(id)) {
            true => self.read_history(move |handle| handle.past_job(id)).await,
            false => Ok(None),
        }
    }

    /// Calls a function with a job that the user may see, in memory or in the history.
    pub(crate) async fn with_job<T>(
        &self,
        user: &User,
        id: JobId,
        read: impl FnOnce(&ClusterState, &JobRecord) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let mut read = Some(read);
        let mut call = |state: &ClusterState, job: Option<&JobRecord>| {
            let job = job.filter(|job| user.may_see(state, job));
            let job = job.ok_or_else(|| Problem::not_found(format!("unknown job {id}")))?;
            let read = read.take().expect("it is called once");
            read(state, job)
        };
        let in_memory = self.handle.read(|state| {
            let job = state.job(id);
            job.map(|job| call(state, Some(job)))
        });
        if let Some(result) = in_memory {
            return result;
        }
        // It has left memory before, or does not exist.
        let past = self.past_job(id).await?;
        self.handle
            .read(|state| call(state, state.job(id).or(past.as_ref())))
    }

    /// Returns a job, in memory or in the history.
    pub(crate) async fn find_job(&self, id: JobId) -> Result<Option<JobRecord>, Problem> {
        match self.handle.read(|state| state.job(id).cloned()) {
            Some(job) => Ok(Some(job)),
            None => self.past_job(id).await,
        }
    }

    /// Calls a function with a job that the user may control, in memory or in the history.
    pub(crate) async fn with_controlled_job<T>(
        &self,
        user: &User,
        id: JobId,
        read: impl FnOnce(&ClusterState, &JobRecord) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        self.with_job(user, id, |state, job| match user.may_control(state, job) {
            true => read(state, job),
            false => Err(Problem::forbidden(format!(
                "job {id} belongs to {}; only its owner, operators of {} and administrators may do this",
                job.user, job.request.tenant
            ))),
        })
        .await
    }
}
