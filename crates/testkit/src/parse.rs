//! Parsing stories.
//!
//! ```text
//! cluster 2x4 1x8,type=v100,cpu=16,mem=64 | 2x4     # `|` begins another rack; `cpu` in cores and `mem` in GiB per node
//! policy srsf placement=spread admission=caps:tenant=8
//! rounds 60s                                          # without this line, decisions are taken at every event
//! start-delay 1s
//! stop-delay 3s
//! chaos 42
//! 0 submit a gpus=4 work=100s tenant=x user=u min=1 max=8 type=v100 cpu=2 mem=8 gpumem=6432 expect=none amdahl=0.9
//! 0 submit b stages=20/60/10                         # milliseconds of data, GPU and network per iteration
//! 5 node-down 0
//! 9 node-up 0
//! 9 drain 1
//! 12 resume 1
//! 12 cancel a
//! 13 fail a
//! 14 explain a
//! ```

use std::str::FromStr;

use dovetail_engine::Clock;
use dovetail_model::ids::{Id, IdVec};
use dovetail_model::stages::Stages;
use dovetail_model::{ClusterSpec, JobKey, NodeId, NodeSpec, Scaling, Time, Work, Zone, ZoneId, parse_span};
use dovetail_workload::{JobLabel, TraceJob};

use crate::scenario::{PolicyText, Scenario, StoryEvent, StoryJob};

/// A line of a story that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid line `{line}`: {error}")]
pub struct StoryError {
    /// The line.
    pub line: String,
    /// What is wrong with it.
    pub error: LineError,
}

/// What is wrong with a line of a story.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe variants and fields")]
pub enum LineError {
    #[error("lines must be in order of time")]
    OutOfOrder,
    #[error("unknown event `{0}`")]
    UnknownEvent(String),
    #[error("unknown node {0}")]
    UnknownNode(NodeId),
    #[error("unknown job {0}")]
    UnknownJob(String),
    #[error("unknown model `{0}`")]
    UnknownModel(String),
    #[error("unknown part `{0}` of a policy")]
    UnknownPart(String),
    #[error("unknown key `{key}` of a {object}")]
    UnknownKey { key: String, object: &'static str },
    #[error("missing name of the {0}")]
    MissingName(&'static str),
    #[error("job {0} exists already")]
    RepeatedJob(String),
    #[error("invalid {what} `{found}`{expected}")]
    Invalid {
        what: &'static str,
        found: String,
        /// Empty, or what is expected instead.
        expected: &'static str,
    },
}

impl LineError {
    fn invalid(what: &'static str, found: &str, expected: &'static str) -> Self {
        Self::Invalid {
            what,
            found: found.to_owned(),
            expected,
        }
    }

    fn unknown_key(key: &str, object: &'static str) -> Self {
        Self::UnknownKey {
            key: key.to_owned(),
            object,
        }
    }
}

impl FromStr for Scenario {
    type Err = StoryError;

    fn from_str(story: &str) -> Result<Self, StoryError> {
        let mut scenario = Scenario::default();
        for line in story.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                parse_line(&mut scenario, line).map_err(|error| StoryError {
                    line: line.to_owned(),
                    error,
                })?;
            }
        }
        Ok(scenario)
    }
}

fn parse_line(scenario: &mut Scenario, line: &str) -> Result<(), LineError> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let rest = rest.trim();
    match word {
        "cluster" => scenario.cluster = cluster(rest)?,
        "policy" => scenario.policy = policy(rest)?,
        "rounds" => scenario.clock = Clock::rounds(span(rest)?),
        "start-delay" => scenario.behaviour.start_delay = span(rest)?,
        "stop-delay" => scenario.behaviour.stop_delay = span(rest)?,
        "chaos" => scenario.behaviour.chaos = Some(number(rest)?),
        "profiles" => scenario.behaviour.profiles_change = true,
        at => {
            let at = Time::from_secs_f64(number(at)?);
            if scenario.events.last().is_some_and(|(last, _)| *last > at) {
                return Err(LineError::OutOfOrder);
            }
            let event = event(scenario, at, rest)?;
            scenario.events.push((at, event));
        }
    }
    if scenario.policy.overrides.tenancy.is_some() {
        scenario.policy.overrides.tenants = scenario.names.tenants.values().cloned().collect();
    }
    Ok(())
}

fn event(scenario: &mut Scenario, at: Time, text: &str) -> Result<StoryEvent, LineError> {
    let (verb, what) = text.split_once(' ').unwrap_or((text, ""));
    let node = |scenario: &Scenario| {
        let node = NodeId(number(what)?);
        let exists = scenario.cluster.nodes.get(node).is_some();
        exists.then_some(node).ok_or(LineError::UnknownNode(node))
    };
    let job = |scenario: &Scenario| {
        let job = scenario.find(what);
        job.ok_or_else(|| LineError::UnknownJob(what.to_owned()))
    };
    Ok(match verb {
        "submit" => {
            let id = JobKey(scenario.jobs.len() as u32);
            let job = story_job(scenario, at, what)?;
            scenario.jobs.push(job);
            StoryEvent::Submit(id)
        }
        "cancel" => StoryEvent::Cancel(job(scenario)?),
        "fail" => StoryEvent::Fail(job(scenario)?),
        "explain" => StoryEvent::Explain(job(scenario)?),
        "node-down" => StoryEvent::NodeDown(node(scenario)?),
        "node-up" => StoryEvent::NodeUp(node(scenario)?),
        "drain" => StoryEvent::Drain(node(scenario)?),
        "resume" => StoryEvent::Resume(node(scenario)?),
        _ => return Err(LineError::UnknownEvent(verb.to_owned())),
    })
}

fn story_job(scenario: &mut Scenario, at: Time, text: &str) -> Result<StoryJob, LineError> {
    let mut fields = text.split_whitespace();
    let name = fields.next().ok_or(LineError::MissingName("job"))?;
    if scenario.find(name).is_some() {
        return Err(LineError::RepeatedJob(name.to_owned()));
    }
    let label = JobLabel::from_text(name);
    let mut job = TraceJob::new(label, at, Work(100_000_000), 1);
    let (mut min_gpus, mut max_gpus, mut expected) = (None, None, None);
    let (mut job_stages, mut restart_cost) = (None, None);
    for field in fields {
        let (key, value) = pair(field)?;
        match key {
            "gpus" => job.gpus = number(value)?,
            "work" => job.work = work(value)?,
            "min" => min_gpus = Some(number(value)?),
            "max" => max_gpus = Some(number(value)?),
            "tenant" => job.tenant = named(&mut scenario.names.tenants, value),
            "user" => job.user = named(&mut scenario.names.users, value),
            "priority" => job.priority = number(value)?,
            "type" => job.gpu_type = Some(scenario.cluster.gpu_type(value)),
            "cpu" => job.cpu_milli_per_gpu = milli(value)?,
            "mem" => job.memory_mib_per_gpu = number::<u64>(value)? * 1024,
            "gpumem" => job.gpu_memory_mib = number(value)?,
            "curve" => {
                let curve = crate::print::curve_of(value);
                job.sensitivity = Some(curve.ok_or_else(|| LineError::UnknownModel(value.to_owned()))?);
            }
            "expect" if value == "none" => expected = Some(None),
            "expect" => expected = Some(Some(work(value)?)),
            "stages" => job_stages = Some(stages(value)?),
            "restart" => restart_cost = Some(span(value)?),
            "amdahl" => {
                job.scaling = Scaling::Amdahl {
                    parallel_ppm: (number::<f64>(value)? * 1e6).round() as u32,
                };
            }
            _ => return Err(LineError::unknown_key(key, "job")),
        }
    }
    job.min_gpus = min_gpus.unwrap_or(job.gpus);
    job.max_gpus = max_gpus.unwrap_or(job.gpus);
    let expected = expected.unwrap_or(Some(job.work));
    Ok(StoryJob {
        job,
        expected,
        stages: job_stages,
        restart_cost,
    })
}

fn stages(text: &str) -> Result<Stages, LineError> {
    let times: Vec<u32> = text.split('/').map(number::<u32>).collect::<Result<_, _>>()?;
    match times[..] {
        [data, gpu, network] => Ok(Stages::three(
            data * 1000,
            gpu * 1000,
            network * 1000,
            (data + gpu + network) * 1000,
        )),
        _ => Err(LineError::invalid(
            "stages",
            text,
            ": expected milliseconds such as 20/60/10",
        )),
    }
}

fn policy(text: &str) -> Result<PolicyText, LineError> {
    let mut words = text.split_whitespace();
    let mut policy = PolicyText::preset(words.next().ok_or(LineError::MissingName("policy"))?);
    for word in words {
        let (kind, part) = pair(word)?;
        let over = &mut policy.overrides;
        let slot = match kind {
            "admission" => &mut over.admission,
            "order" => &mut over.order,
            "discipline" => &mut over.discipline,
            "sizing" => &mut over.sizing,
            "grouping" => &mut over.grouping,
            "placement" => &mut over.placement,
            "tenancy" => &mut over.tenancy,
            _ => return Err(LineError::UnknownPart(kind.to_owned())),
        };
        *slot = Some(part.to_owned());
    }
    Ok(policy)
}

fn cluster(text: &str) -> Result<ClusterSpec, LineError> {
    let mut cluster = ClusterSpec::bare("gpu");
    let mut zone = ZoneId(0);
    for word in text.split_whitespace() {
        if word == "|" {
            let name = format!("rack-{}", cluster.zones.len());
            zone = cluster.zones.push(Zone { name, parent: None });
            continue;
        }
        let mut parts = word.split(',');
        let size = parts.next().unwrap_or_default();
        let (nodes, gpus) = size
            .split_once('x')
            .ok_or_else(|| LineError::invalid("nodes", word, ": expected a size such as 2x4"))?;
        let mut spec = NodeSpec::plain("", number(gpus)?);
        spec.zone = zone;
        for part in parts {
            let (key, value) = pair(part)?;
            match key {
                "type" => spec.gpu_type = cluster.gpu_type(value),
                "cpu" => spec.cpu_milli = milli(value)?,
                "mem" => spec.memory_mib = number::<u64>(value)? * 1024,
                "gpumem" => spec.gpu_memory_mib = number(value)?,
                _ => return Err(LineError::unknown_key(key, "node")),
            }
        }
        for _ in 0..number::<u32>(nodes)? {
            spec.name = format!("node-{}", cluster.nodes.len());
            cluster.nodes.push(spec.clone());
        }
    }
    Ok(cluster)
}

fn named<I: Id>(names: &mut IdVec<I, String>, name: &str) -> I {
    let known = names.iter().find(|(_, n)| n.as_str() == name).map(|(id, _)| id);
    known.unwrap_or_else(|| names.push(name.to_owned()))
}

fn pair(word: &str) -> Result<(&str, &str), LineError> {
    word.split_once('=')
        .ok_or_else(|| LineError::invalid("field", word, ": expected KEY=VALUE"))
}

fn number<T: FromStr>(text: &str) -> Result<T, LineError> {
    text.parse().map_err(|_| LineError::invalid("number", text, ""))
}

fn milli(text: &str) -> Result<u32, LineError> {
    Ok((number::<f64>(text)? * 1000.0).round() as u32)
}

fn span(text: &str) -> Result<Time, LineError> {
    parse_span(text).ok_or_else(|| LineError::invalid("duration", text, ""))
}

fn work(text: &str) -> Result<Work, LineError> {
    span(text).map(|span| Work(span.0 as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parsed_story_is_printed_unchanged() {
        let story = "\
cluster 2x4 1x8,type=v100,cpu=16,mem=64 | 1x4,mem=7,gpumem=16000
policy srsf:1 admission=caps:tenant=8 placement=spread
rounds 60s
start-delay 1s
stop-delay 0.5s
chaos 42
0 submit a gpus=4 work=100s tenant=x user=u priority=-1 min=1 max=8 type=v100 cpu=2.5 mem=8 expect=none amdahl=0.9
0.000001 submit b gpus=1 work=0.5s expect=7s stages=20/60/10
5 node-down 0
5 drain 1
12 fail b
";
        let scenario: Scenario = story.parse().unwrap();
        assert_eq!(scenario.to_string(), story);
        assert_eq!(scenario.to_string().parse::<Scenario>().unwrap(), scenario);
    }

    #[test]
    fn errors_name_the_invalid_line() {
        let error = |story: &str| story.parse::<Scenario>().unwrap_err().to_string();
        assert_eq!(
            error("cluster 1x4\n5 node-down 3"),
            "invalid line `5 node-down 3`: unknown node 3"
        );
        assert!(error("0 submit a size=3").ends_with("unknown key `size` of a job"));
        assert!(error("5 submit a\n4 submit b").ends_with("lines must be in order of time"));
    }
}
