//! Records of a run: the state of the cluster, and explanations of jobs.

use dovetail_engine::Explanation;
use dovetail_model::run::Moment;

use super::Run;

impl Run<'_> {
    /// Records the state of the cluster if it has changed; only the last one of a moment counts.
    pub(super) fn record_state(&mut self) {
        let mut moment = Moment {
            at: self.now,
            idle_nodes: 0,
            busy_nodes: 0,
            full_nodes: 0,
            idle_gpus: self.up_gpus.saturating_sub(self.busy_gpus),
            busy_gpus: self.busy_gpus,
            waiting: self.engine.idle().0,
            running: self.engine.holding(),
            finished: self.finished,
        };
        for (_, node) in self.engine.cluster().nodes().filter(|(_, n)| n.up) {
            match node.free_gpus {
                0 => moment.full_nodes += 1,
                free if free == node.spec.gpus => moment.idle_nodes += 1,
                _ => moment.busy_nodes += 1,
            }
        }
        self.moments.pop_if(|last| last.at == moment.at);
        let unchanged = |last: &Moment| {
            Moment {
                at: moment.at,
                ..*last
            } == moment
        };
        if !self.moments.last().is_some_and(unchanged) {
            self.moments.push(moment);
        }
    }

    /// Records the explanations of the jobs that the journal follows, where they changed.
    pub(super) fn record_explanations(&mut self) {
        let Some(journal) = self.journal.as_mut().filter(|j| !j.followed.is_empty()) else {
            return;
        };
        for job in &journal.followed {
            let explanation = self.engine.explain(*job);
            let last = journal
                .explanations
                .iter()
                .rev()
                .find(|(_, other, _)| other == job);
            if last.map_or(&Explanation::Unknown, |(_, _, last)| last) != &explanation {
                journal.explanations.push((self.now, *job, explanation));
            }
        }
    }
}
