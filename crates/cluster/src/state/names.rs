//! Names of tenants, users, GPU types, racks and models, which are numbers in the engine.

use dovetail_learning::{UNNAMED, model_key};
use dovetail_model::{GpuTypeId, JobKey, JobSpec, ModelId, ProfileKey, TenantId, Time, UserId, Work, ZoneId};
use serde::{Deserialize, Serialize};

use crate::request::JobRequest;

/// Largest number of models that users state. Slowdowns beside others are not known of further ones.
const MAX_MODELS: usize = 4_096;

/// Names by the numbers that stand for them in the engine. Numbers are never reused.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Names {
    pub(crate) tenants: Vec<String>,
    pub(crate) users: Vec<String>,
    pub(crate) gpu_types: Vec<String>,
    pub(crate) racks: Vec<String>,
    #[serde(default)]
    pub(super) models: Vec<String>,
}

/// Returns the number of a name, and adds the name if it is new.
fn number(table: &mut Vec<String>, name: &str) -> u32 {
    let known = table.iter().position(|n| n == name);
    let number = known.unwrap_or_else(|| {
        table.push(name.to_owned());
        table.len() - 1
    });
    number as u32
}

impl Names {
    pub(super) fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    pub(super) fn tenant(&mut self, name: &str) -> TenantId {
        TenantId(number(&mut self.tenants, name))
    }

    pub(super) fn gpu_type(&mut self, name: &str) -> GpuTypeId {
        GpuTypeId(number(&mut self.gpu_types, name))
    }

    pub(super) fn rack(&mut self, name: &str) -> ZoneId {
        ZoneId(number(&mut self.racks, name))
    }

    /// Returns the number of a model that users stated; none for jobs that share a profile by user and name.
    pub(super) fn model(&mut self, key: &str) -> Option<ModelId> {
        let is_stated = !key.starts_with(UNNAMED);
        let has_room = self.models.len() < MAX_MODELS || self.models.iter().any(|model| model == key);
        (is_stated && has_room).then(|| ModelId(number(&mut self.models, key)))
    }

    /// Converts a request to the form the engine reads.
    pub(crate) fn spec(
        &mut self,
        user: &str,
        request: &JobRequest,
        submitted: Time,
        job_key: JobKey,
    ) -> JobSpec {
        JobSpec {
            tenant: self.tenant(&request.tenant),
            user: UserId(number(&mut self.users, user)),
            priority: request.priority,
            min_gpus: request.min_gpus.unwrap_or(request.gpus),
            max_gpus: request.max_gpus.unwrap_or(request.gpus),
            gpu_type: request.gpu_type.as_ref().map(|name| self.gpu_type(name)),
            cpu_milli_per_gpu: request.cpus_per_gpu.milli(),
            memory_mib_per_gpu: request.memory_mib_per_gpu,
            constraint: request.constraint,
            best_effort: request.best_effort,
            gpu_memory_mib: request.gpu_memory_mib,
            gpus_per_task: request.gpus_per_task,
            submit: submitted,
            expected: request.expected.map(|span| Work(span.0.max(0).unsigned_abs())),
            profile_key: Some(ProfileKey::of(&model_key(
                request.model.as_deref(),
                user,
                &request.name,
            ))),
            model: request.model.as_ref().and_then(|name| self.model(name)),
            stages: request.stages.and_then(|stages| stages.stages()),
            scaling: request.scaling.scaling(),
            deadline: request.deadline.map(|deadline| deadline.of(submitted)),
            ..JobSpec::new(job_key, request.gpus)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_of_users_do_not_grow_without_bound() {
        let mut names = Names::default();
        let first = names.model("first");
        for i in 0..2 * MAX_MODELS {
            names.model(&format!("model-{i}"));
        }
        assert_eq!(names.models.len(), MAX_MODELS);
        assert_eq!((names.model("first"), names.model("another")), (first, None));
    }
}
