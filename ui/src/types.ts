// Types of the API. Times are microseconds since 1970; durations that end in _s are seconds.

export type Time = number;

export type Role = "viewer" | "member" | "operator" | "administrator";

export interface CurrentUser {
  name: string;
  admin: boolean;
  email?: string | null;
  roles?: Record<string, Role>;
  via?: "session" | "token";
  csrf?: string | null;
  must_change_password?: boolean;
}

export interface Info {
  name: string;
  version: string;
  sign_in: string[];
  oidc_url: string | null;
}

/** Ways to sign in. */
export interface SignInOptions {
  password: boolean;
  oidc: { label: string; url: string } | null;
}

export interface NodeSlots {
  node: string;
  gpus: number[];
}

export interface Attempt {
  attempt: number;
  since: Time;
  running_since: Time | null;
  until: Time | null;
  placement: NodeSlots[];
  tasks: string[];
  end: string | null;
  sharing: string;
  shared_with?: number[];
  gates?: Gates;
  last_output?: string;
}

/** How jobs on the same GPUs take turns; times in microseconds. */
export interface Gates {
  planned_period: Time;
  measured_period: Time | null;
  wait_per_step: Time;
  group?: {
    in_turn_period: Time;
    planned_efficiency: number;
    measured_efficiency: number | null;
    in_turn_efficiency: number;
    members: { job: number; name: string; stages: GatedStage[] }[];
  };
}

export interface GatedStage {
  stage: "data" | "gpu" | "net";
  planned_begin: Time;
  planned: Time;
  measured_begin: Time | null;
  measured: Time | null;
}

export interface Steps {
  step: number;
  total: number;
  step_time: Time;
  checkpoint: number;
}

export interface Instance {
  index: number;
  node: string | null;
  gpus: number[] | number;
  state: string;
  exit_code: number | null;
}

/** How long a job is expected to run, and where that comes from. */
export interface Estimate {
  expected_s: number;
  source: "user" | "steps" | "profile" | "prediction";
  low_s?: number;
  high_s?: number;
  similar_jobs?: number;
}

/** What was measured of a model while its jobs ran. */
export interface Profile {
  model: string;
  jobs: number;
  updated: Time;
  measurements: Measurement[];
  scaling: Record<string, number>;
}

export interface Measurement {
  gpus: number;
  nodes: number;
  gpu_type: string;
  cpus_per_gpu: number;
  beside: string | null;
  samples: number;
  step_ms: number;
  data_ms: number;
  net_ms: number;
  spread_ms: number;
  slowdown: number | null;
}

export interface Job {
  id: number;
  name: string;
  user: string;
  tenant: string;
  state: string;
  /** Why the job is in this state, in a word: `preempted`, `time-limit`, `rejected`, `dependency-failed`. */
  state_reason?: string;
  detail: string;
  since: Time;
  exit_code: number | null;
  gpus: number;
  priority: number;
  submitted: Time;
  started: Time | null;
  ended: Time | null;
  placement: NodeSlots[];
  steps: Steps | null;
  estimate?: Estimate;
  gpu_seconds: number;
  labels: Record<string, string>;
  attempt_count: number;
  attempts?: Attempt[];
  request?: Record<string, unknown>;
  roles?: { name: string; instances: Instance[] }[];
  hint?: string | null;
  text?: string | null;
}

export interface JobPage {
  jobs: Job[];
  next: string | number | null;
  total?: number;
}

export interface Eta {
  p50: Time;
  p90: Time;
  p50_s: number;
  p90_s: number;
  samples: number;
  based_on: string;
}

export interface Explanation {
  sentence: string;
  reasons: string[];
  ahead: number;
  jobs_ahead?: { id: number; name: string; user: string; gpus: number; state: string }[];
  alternatives?: { change: string; to?: string; sentence: string; starts_now: boolean }[];
  eta?: Eta | null;
  no_eta_reason?: string;
}

export interface SubmissionPreview {
  starts_now: boolean;
  placement: NodeSlots[];
  preempts: number[];
  explanation: Explanation;
  eta?: Eta | null;
}

export interface SubmitResponse {
  id?: number | null;
  last?: number | null;
  preview?: SubmissionPreview | null;
  ignored?: string[];
  job?: Record<string, unknown>;
}

export interface Node {
  name: string;
  state: string;
  detail: string;
  since: Time;
  connected: boolean;
  gpu_type: string;
  gpus: number;
  used_gpus: number;
  cpu_milli: number;
  memory_mib: number;
  rack: string;
  address: string;
  jobs: number[];
  slots?: { index: number; jobs: number[]; vc: string | null; health: "ok" | "bad" }[];
}

export interface Cluster {
  now: Time;
  policy: string;
  parts: Record<string, string>;
  clock: string;
  paused: boolean;
  nodes: number;
  gpus: number;
  used_gpus: number;
  jobs: Record<string, number>;
  journal_error: string | null;
  /** Name of the runtime that runs jobs. */
  runtime?: string;
  warnings?: { part: string; need: string; text: string; help: string | null }[];
  last_event: number;
  version: string;
}

export interface ClusterEvent {
  number: number;
  at: Time;
  job?: number;
  kind: string;
  text: string;
}

export interface Cell {
  id: string;
  type: string;
  level: number;
  gpus: number;
  used_gpus: number;
  /** GPUs of the cell that jobs of other virtual clusters hold. */
  lent_gpus?: number;
  health: "ok" | "bad";
  node: string | null;
  job: number | null;
  children?: Cell[];
}

export interface Vc {
  name: string;
  guaranteed_gpus: number;
  most_borrowed: number | null;
  /** GPUs of guaranteed jobs; borrowed GPUs are not included. */
  used_gpus: number;
  borrowed_gpus: number;
  lent_gpus: number;
  running_jobs: number;
  waiting_jobs: number;
  user_cap_gpus: number | null;
  max_priority: number | null;
  everyone: "none" | "viewer" | "member";
  /** Queue order of its own jobs; none for that of the policy. */
  order?: string | null;
  role: Role | null;
  cells?: Cell[];
}

export interface VcList {
  mode: "open" | "quota" | "cells";
  gpus: number;
  vcs: Vc[];
}

export interface VcDiff {
  changes: { vc: string; field: string; before: unknown; after: unknown }[];
  effects: string[];
  stops: number[];
  starts: number[];
  refused: string | null;
}

export interface QueueEntry {
  id: number;
  name: string;
  user: string;
  tenant: string;
  gpus: number;
  priority: number;
  since: Time;
  ahead: number;
  reason: string;
}

export interface UsageRow {
  day: string;
  user: string;
  tenant: string;
  gpu_hours: number;
  jobs: number;
}

export interface LogPiece {
  node: string;
  attempt: number;
  data?: string;
  offset: number;
  error?: string | null;
}

export interface LogMatch {
  node: string;
  offset: number;
  line: string;
}

export interface ProgressPoint {
  at: Time;
  step: number;
  total: number;
  step_time_us: number;
  checkpoint: number;
}

export interface Parameter {
  name: string;
  type: "text" | "number" | "choice" | "flag";
  default?: string | number | boolean | null;
  choices?: string[] | null;
  help?: string;
  min?: number | null;
  max?: number | null;
}

export interface Template {
  name: string;
  title: string;
  description: string;
  parameters: Parameter[];
  text: string;
}

export interface UserRow {
  name: string;
  admin: boolean;
  email?: string | null;
  roles?: Record<string, Role>;
  has_password?: boolean;
  tokens?: number;
}

export interface TokenRow {
  id: string | number;
  label: string;
  scope: "read" | "jobs" | "all";
  /** Whether it is the session of a browser. */
  session?: boolean;
  created: Time;
  expires: Time | null;
  last_used?: Time | null;
}

export interface Notify {
  email: boolean;
  webhook: string;
  on: string[];
  /** 0 for the default of the server, here and below. */
  pending_s: number;
  low_gpu_percent?: number;
  /** Secret that webhook requests are signed with. */
  secret?: string;
}

/** Results of a test notification. */
export interface NotifyTest {
  webhook: { ok: boolean; detail: string } | null;
  email: { ok: boolean; detail: string } | null;
}

/** GPU utilization of a job, in percent. */
export interface GpuUtilization {
  known: boolean;
  note: string;
  mean: GpuPoint[];
  gpus: { node: string; gpu: number; points: GpuPoint[] }[];
}

export interface GpuPoint {
  at: Time;
  busy: number;
  memory_mib: number | null;
}

export interface AuditPage {
  entries: { seq: number; at: Time; who: string; what: string; target: string; before: unknown; after: unknown }[];
  next: number | null;
}

export interface PolicyInfo {
  name: string;
  what: string;
  paper: string;
  key: string;
  needs?: string[];
  /** Why this cluster refuses the policy. */
  refused?: string | null;
}
